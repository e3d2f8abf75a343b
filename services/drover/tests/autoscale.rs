//! `drover autoscale` and `drover experiment autoscaling` as programs: pipes, files, exit codes.
#![allow(clippy::unwrap_used, reason = "tests")]

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
fn decides_line_by_line_until_a_line_is_wrong() {
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
fn answers_through_pipes_before_the_next_question() {
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
fn wrong_configurations_say_what_is_wrong() {
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

#[test]
fn a_trained_table_is_used_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let train =
        ["autoscale", "train", "--shape", "launch", "--seconds", "5000", "--training", "5000", "--passes", "10", "--table", "table.json"];
    assert!(drover(dir.path(), &train, "").status.success());
    std::fs::write(dir.path().join("q.yaml"), "policy: qlearning\nqlearning: {table: table.json, noise: 0}\n").unwrap();
    let line = "{\"t\":15,\"pods\":2,\"cpu\":1.0,\"expired\":4,\"podSeconds\":30}\n";
    let decision = &lines(&drover(dir.path(), &["autoscale", "decide", "q.yaml"], line))[0];
    assert_eq!((&decision["bucket"], &decision["action"], &decision["want"]), (&10.into(), &1.into(), &3.into()));
    assert!(decision["q"].as_array().unwrap().iter().any(|value| value.as_f64() != Some(0.0)), "{decision}");
    std::fs::write(dir.path().join("q.yaml"), "policy: qlearning\nqlearning: {table: table.json, maxPods: 6}\n").unwrap();
    let refused = drover(dir.path(), &["autoscale", "decide", "q.yaml"], line);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("1..4, needed is 1..6"), "{refused:?}");
}

#[test]
fn simulations_write_their_pictures() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("points.csv"), "pods,rps\n1,100\n2,190\n4,380\n").unwrap();
    let args = ["autoscale", "simulate", "--seconds", "1200", "--capacity", "points.csv", "--out", "out", "-o", "json"];
    let output = drover(dir.path(), &args, "");
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    assert_eq!(
        rows.iter().map(|row| row[0].as_str().unwrap()).collect::<Vec<_>>(),
        ["always 1", "always 2", "always 3", "always 4", "threshold 80 %", "kpa", "qlearning"]
    );
    for file in ["totals.csv", "course.csv", "load.svg", "pods.svg", "expired.svg", "cost.svg"] {
        assert!(std::fs::metadata(dir.path().join("out").join(file)).unwrap().len() > 100, "{file}");
    }
    let wrong = drover(dir.path(), &["autoscale", "simulate", "--timeout", "0.25"], "");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("multiple of the step"), "{wrong:?}");
}

#[test]
fn an_experiment_without_its_traces_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["experiment", "autoscaling", "--data", "nowhere", "--no-generated", "--strict", "-o", "json"];
    let output = drover(dir.path(), &args, "");
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.len() == 7 && checks.iter().all(|check| check["ok"] == false && check["got"] == "no trace"), "{checks:?}");
}
