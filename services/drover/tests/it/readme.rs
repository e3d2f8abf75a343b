//! The commands of README.md, run from its text.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::program::{DROVER, HOME, json as get, simulated, start, wait};

/// The commands of the section "Try it by hand", without their comments.
fn commands() -> Vec<String> {
    let readme = include_str!("../../../../README.md");
    let section = readme.split("## Try it by hand").nth(1).unwrap().split("\n## ").next().unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("    drover "));
    lines.map(|line| line.split("  #").next().unwrap().split(" # ").next().unwrap().trim().to_owned()).collect()
}

pub(crate) fn run(url: &str, folder: &Path, command: &str) -> Output {
    let mut drover = Command::new(DROVER);
    drover.args(command.split_whitespace()).current_dir(folder).env_clear();
    drover.env("HOME", HOME).env("PATH", std::env::var_os("PATH").unwrap()).env("DROVER_URL", url);
    drover.stdin(Stdio::null()).output().unwrap()
}

/// A Deployment with a Service of its name, and with a text in its environment.
pub(crate) fn workload(name: &str, cpu: &str, calls: &str) -> Vec<Value> {
    let container = json!({"name": name, "image": "example.com/app:1", "env": [{"name": "CALLS", "value": calls}],
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}});
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}});
    vec![
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}}),
    ]
}

pub(crate) fn write(path: &Path, objects: &[Value]) {
    let mut file = std::fs::File::create(path).unwrap();
    objects.iter().for_each(|object| writeln!(file, "---\n{object}").unwrap());
}

/// Where the application runs: cluster and phase of each copy.
fn copies(url: &str, app: &str) -> Vec<(String, String)> {
    let apps = get(url, &["get", "apps", "-o", "json"]);
    let mine = apps.as_array().unwrap().iter().filter(|item| item["compositeApp"] == app);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    mine.flat_map(|item| item["bindings"].as_array().unwrap().iter().map(|b| (text(&b["member"]), text(&b["phase"]))).collect::<Vec<_>>())
        .collect()
}

#[test]
fn commands_of_the_readme_do_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (members, files) = simulated(2, &at("sim"));
    let (up, url) = start(folder.path());
    std::fs::create_dir(at("manifests")).unwrap();
    write(&at("manifests/web.yaml"), &workload("web", "1", "http://cart:80/items"));
    write(&at("manifests/cart.yaml"), &workload("cart", "1500m", ""));
    write(&at("ledger.yaml"), &workload("ledger", "2", ""));
    let mut plan = String::new();
    let mut seen = Vec::new();
    for command in commands() {
        let verb = command.split(' ').take(2).collect::<Vec<_>>().join(" ");
        // These two run for as long as the test does.
        if verb.starts_with("up") || verb == "dev sim" {
            continue;
        }
        let mut command = command.replace("ID", &plan);
        for (index, file) in files.iter().enumerate() {
            command = command.replace(&format!("/tmp/sim/sim-{}.kubeconfig", index + 1), file);
        }
        let each: Vec<String> = match command.strip_prefix("get ").and_then(|rest| rest.split_once(' ')) {
            Some((kinds, _)) => kinds.split('|').flat_map(|kind| [format!("get {kind}"), format!("get {kind} -o json")]).collect(),
            None => vec![command],
        };
        for command in each {
            let output = run(&url, folder.path(), &command);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "drover {command}: {said}{}", String::from_utf8_lossy(&output.stderr));
            if let Some(id) = said.lines().find_map(|line| line.trim().strip_prefix("drover plan apply ")) {
                plan = id.to_owned();
            }
            match &*verb {
                "provider set" => {
                    wait(|| get(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|c| c["ageMs"].is_u64()))
                }
                "deploy shop" => {
                    assert_eq!(copies(&url, "shop"), [("onprem+private-a".to_owned(), "Ready".to_owned())], "the preferred cluster")
                }
                "deploy ledger" => assert!(said.contains("shop/shop → public-b"), "it has to make room: {said}"),
                "plan drain" => assert!(said.contains("shop/shop → public-b") && !plan.is_empty(), "the Service does not keep it: {said}"),
                "plan apply" => wait(|| copies(&url, "shop") == [("aws+public-b".to_owned(), "Ready".to_owned())]),
                _ => {}
            }
        }
        seen.push(verb);
    }
    for verb in ["cluster add", "provider set", "deploy shop", "explain shop", "deploy ledger", "plan drain", "plan apply"] {
        assert!(seen.iter().any(|seen| seen == verb), "README no longer shows `drover {verb}`: {seen:?}");
    }
    drop(up);
    drop(members);
}
