//! `drover autoscale decide`, run as a program: pipes, files, exit codes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn drover(dir: &Path, args: &[&str], input: &str) -> Output {
    let mut child = spawn(dir, args);
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn spawn(dir: &Path, args: &[&str]) -> std::process::Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.args(args).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn decide_prints_decisions_until_a_line_is_invalid() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("kpa.yaml"), "policy: kpa\nkpa: {targetBurstCapacity: 100, containerConcurrency: 10}\n").unwrap();
    let good = r#"{"t":12,"ready":3,"stable":41.0,"panic":55.0}"#;
    let output = drover(dir.path(), &["autoscale", "decide", "kpa.yaml"], &format!("{good}\n\n{{\"t\":14,\"redy\":3}}\n{good}\n"));
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("line 3") && told.contains("redy"), "{told}");
    let decisions = lines(&output);
    assert_eq!(decisions.len(), 1);
    assert_eq!(
        (&decisions[0]["want"], &decisions[0]["excessBurstCapacity"], &decisions[0]["panic"]),
        (&8.into(), &(-125).into(), &true.into())
    );
}

#[test]
fn decide_answers_each_line_before_it_reads_the_next() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("kpa.json"), r#"{"policy":"kpa"}"#).unwrap();
    let mut child = spawn(dir.path(), &["autoscale", "decide", "--config", "kpa.json", "--record"]);
    let (mut questions, mut answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for t in [0, 2] {
        writeln!(questions, r#"{{"t":{t},"ready":1,"stable":10,"panic":10}}"#).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        let record: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((record["at"].as_f64(), &record["policy"]), (Some(f64::from(t)), &"kpa".into()));
        assert!(record["inputs"]["kpa"]["stable"]["value"].is_number(), "{record}");
    }
    drop(questions);
    assert!(child.wait().unwrap().success());
}

#[test]
fn decide_names_what_is_wrong_with_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    for (config, word) in [
        ("policy: hpa", "hpa"),
        ("policy: kpa\nkpa: {targets: 3}", "targets"),
        ("policy: threshold\nthreshold: {minReplicas: 5, maxReplicas: 2}", "maxReplicas"),
        ("policy: qlearning\nqlearning: {table: none.json}", "none.json"),
        ("policy: [", "not a configuration"),
    ] {
        std::fs::write(dir.path().join("c.yaml"), config).unwrap();
        let output = drover(dir.path(), &["autoscale", "decide", "c.yaml"], "");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{config}");
        assert!(told.contains(word), "{config}: {told}");
    }
    assert_eq!(drover(dir.path(), &["autoscale", "decide", "--primitive", "nothing"], "").status.code(), Some(2));
    let sum = drover(dir.path(), &["autoscale", "decide", "--primitive", "sampleSize"], "{\"population\":100}\n");
    assert_eq!(lines(&sum)[0]["result"], 14);
}
