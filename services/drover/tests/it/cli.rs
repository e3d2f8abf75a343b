//! The program as people run it: its help, its errors, and what it says when something is missing.

use std::path::Path;

use serde_json::Value;

use crate::database;
use crate::program::{DROVER, command, ok, run, start_and_hear};

#[test]
fn help_is_as_reviewed() {
    let commands: [&[&str]; 14] = [
        &[],
        &["up"],
        &["cluster"],
        &["cluster", "add"],
        &["provider"],
        &["deploy"],
        &["apply"],
        &["get"],
        &["explain"],
        &["plan"],
        &["plan", "newcomer"],
        &["operation"],
        &["policy"],
        &["config", "explain"],
    ];
    let mut text = String::new();
    for command in commands {
        let args: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
        text.push_str(&format!("$ drover {}\n{}\n", args.join(" "), ok("http://127.0.0.1:7070", &args)));
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/help.txt");
    if std::env::var_os("DROVER_ACCEPT").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let reviewed = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(text == reviewed, "the help has changed; look at it, then accept it with DROVER_ACCEPT=1:\n{text}");
}

#[test]
fn empty_variables_are_not_set() {
    let empty = ["DROVER_URL", "DROVER_PROJECT", "DROVER_TOKEN_FILE", "DROVER_CA_FILE", "DROVER_CONFIG", "DROVER_HELM", "DROVER_LOG"];
    let run = |args: &[&str]| command("", args).envs(empty.map(|name| (name, ""))).output().unwrap();
    let explained = run(&["config", "explain", "orchestrator", "-o", "json"]);
    let said = String::from_utf8_lossy(&explained.stderr);
    assert!(explained.status.success(), "{said}");
    let settings: Value = serde_json::from_slice(&explained.stdout).unwrap();
    let setting = |name: &str| settings.as_array().unwrap().iter().find(|setting| setting["name"] == name).unwrap().clone();
    assert_eq!((setting("helm")["source"].as_str(), setting("log")["value"].as_str()), (Some("default"), Some("info")));
    // Whether a Drover is at the default address or not, the line is understood.
    let listed = run(&["get", "clusters"]);
    assert_ne!(listed.status.code(), Some(2), "{}", String::from_utf8_lossy(&listed.stderr));
}

#[test]
fn connection_error_says_how_to_start_drover_and_wrong_usage_exits_with_2() {
    let nobody = run("http://127.0.0.1:9", &["get", "clusters"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("drover up"));
    let wrong = run("http://127.0.0.1:9", &["deploy", "--wait"]);
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        wrong.status.code() == Some(2) && said.contains("Usage: drover deploy --wait --filename <PATH> <NAME>"),
        "what the environment gives: {said}"
    );
    let wrong = command("http://127.0.0.1:9", &["backup"]).env("DROVER_DATA", "/nowhere").output().unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(said.contains("Usage: drover backup --out <FILE>\n"), "also of options of a command alone: {said}");
    let wrong = run("http://127.0.0.1:9", &["deploy", "--url", "http://127.0.0.1:9"]);
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("Usage: drover deploy --url <URL> --filename <PATH> <NAME>"),
        "what is written stays"
    );
}

#[test]
fn up_and_doctor_say_what_does_not_work_without_helm_and_kustomize() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing").display().to_string();
    std::fs::create_dir(&nothing).unwrap();
    let without = [("PATH", nothing.as_str()), ("DROVER_HELM", ""), ("DROVER_KUSTOMIZE", ""), ("DROVER_KUBE_BIN", "")];
    database::prepare(folder.path());
    let (up, url, heard) = start_and_hear(folder.path(), &without);
    let notes = |of: &[String]| of.iter().filter(|line| line.starts_with("note: ")).cloned().collect::<Vec<_>>();
    let (helm, kustomize) = ("charts cannot be deployed without helm", "`drover deploy -k` needs kustomize or kubectl");
    assert!(matches!(&notes(&heard)[..], [one, two] if one.contains(helm) && two.contains(kustomize)), "{heard:?}");
    let doctor = |settings: &[(&str, &str)]| -> Value {
        let output = command(&url, &["doctor", "-o", "json"]).envs(settings.iter().copied()).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let found = |checks: &Value, name: &str| checks.as_array().unwrap().iter().find(|check| check["check"] == name).unwrap().clone();
    let lacking = doctor(&without);
    for (name, what) in [("helm", helm), ("kustomize", kustomize)] {
        let check = found(&lacking, name);
        assert!(check["result"] == "optional" && check["detail"].as_str().unwrap().contains(what), "{lacking}");
    }
    // With both, nobody is bothered.
    let program = std::env::current_exe().unwrap().display().to_string();
    let with = [("PATH", nothing.as_str()), ("DROVER_HELM", DROVER), ("DROVER_KUSTOMIZE", program.as_str()), ("DROVER_KUBE_BIN", "")];
    let complete = doctor(&with);
    assert!(found(&complete, "helm")["result"] == "ok" && found(&complete, "kustomize")["result"] == "ok", "{complete}");
    drop(up);
    let (up, _, heard) = start_and_hear(folder.path(), &with);
    assert!(notes(&heard).is_empty(), "{heard:?}");
    drop(up);
}
