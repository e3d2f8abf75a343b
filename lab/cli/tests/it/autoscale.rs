//! `drover autoscale simulate` and `train`, and `drover experiment autoscaling`, run as programs: files, exit codes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs `drover`, which runs `drover-lab` for these commands.
fn drover(dir: &Path, args: &[&str], input: &str) -> Output {
    let mut command = Command::new(crate::drover());
    command.args(args).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn decide_uses_a_trained_table_and_refuses_one_for_fewer_pods() {
    let dir = tempfile::tempdir().unwrap();
    let train =
        ["autoscale", "train", "--shape", "launch", "--seconds", "5000", "--training", "5000", "--passes", "10", "--table", "table.json"];
    assert!(drover(dir.path(), &train, "").status.success());
    std::fs::write(dir.path().join("q.yaml"), "policy: qlearning\nqlearning: {table: table.json, noise: 0}\n").unwrap();
    let line = "{\"t\":15,\"pods\":2,\"cpu\":1.0,\"expired\":4,\"podSeconds\":30}\n";
    let decision: Value = serde_json::from_slice(&drover(dir.path(), &["autoscale", "decide", "q.yaml"], line).stdout).unwrap();
    assert_eq!((&decision["bucket"], &decision["action"], &decision["want"]), (&10.into(), &1.into(), &3.into()));
    assert!(decision["q"].as_array().unwrap().iter().any(|value| value.as_f64() != Some(0.0)), "{decision}");
    std::fs::write(dir.path().join("q.yaml"), "policy: qlearning\nqlearning: {table: table.json, maxPods: 6}\n").unwrap();
    let refused = drover(dir.path(), &["autoscale", "decide", "q.yaml"], line);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("1..4, but 1..6 is needed"), "{refused:?}");
}

#[test]
fn simulate_writes_tables_and_charts() {
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
fn experiment_without_traces_fails_its_checks() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["experiment", "autoscaling", "--data", "nowhere", "--no-generated", "--strict", "-o", "json"];
    let output = drover(dir.path(), &args, "");
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.len() == 7 && checks.iter().all(|check| check["ok"] == false && check["got"] == "no trace"), "{checks:?}");
}

#[test]
fn real_experiment_refuses_options_of_the_simulated_one() {
    let dir = tempfile::tempdir().unwrap();
    for (wrong, says) in
        [(&["--real", "--seeds", "5"][..], "'--seeds <SEEDS>'"), (&["--speed", "40"], "--real"), (&["--real", "--speed", "1"], "5..=100")]
    {
        let output = drover(dir.path(), &[&["experiment", "autoscaling"], wrong].concat(), "");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(says), "{wrong:?}: {said}");
    }
}
