//! The experiments on clusters: what is deployed through REST ends as in memory.

use std::process::{Command, Stdio};

use serde_json::Value;

#[test]
#[ignore = "long: 120 applications, one after the other"]
fn occupancy_of_deployed_draws_is_that_of_the_draws_in_memory() {
    let report = |members: &str| -> Value {
        let mut command = Command::new(crate::LAB);
        command.args(["experiment", "occupancy", "--draws", "2", "--demand", "85", "-o", "json", "--members", members]);
        let output = command.env_remove("DATABASE_URL").stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (deployed, expected) = (report("sim"), report("memory"));
    let alike = deployed["checks"].as_array().unwrap().last().unwrap();
    assert!(alike["name"].as_str().unwrap().contains("as in memory") && alike["ok"] == true, "{alike}");
    let rows = |report: &Value| report["tables"][0]["rows"].as_array().unwrap().clone();
    let [deployed, expected] = [rows(&deployed), rows(&expected)];
    // Where nothing moves, no tie is broken by the time that pods took to start.
    for (deployed, expected) in deployed.iter().zip(&expected).filter(|(row, _)| row[1] == "neither" || row[1] == "priority") {
        assert_eq!(deployed, expected);
    }
    assert_eq!(deployed.len(), expected.len());
}

#[test]
#[ignore = "long: seven minutes on a real kubelet"]
fn case_b_is_carried_out_on_a_real_kubelet() {
    if drover_testkit::needs("DROVER_KUBE_BIN").is_none() {
        return;
    }
    let nowhere = tempfile::tempdir().unwrap();
    let mut command = Command::new(crate::LAB);
    command.args(["experiment", "autoscaling", "--real", "--speed", "60", "-o", "json", "--data"]).arg(nowhere.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // No check is about what the cases cost, which depends on the machine and on chance.
    let failed: Vec<_> = report["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false).collect();
    assert!(failed.is_empty(), "{failed:#?}\n{:#}", report["tables"]);
    assert!(report["findings"][0].as_str().unwrap().starts_with("generated-launch, 60 times as fast"), "{report}");
    let outcomes = report["tables"].as_array().unwrap().iter().find(|table| table["name"] == "real-outcomes").unwrap();
    assert_eq!(outcomes["rows"].as_array().unwrap().len(), 3, "both cases, and the simulator");
}
