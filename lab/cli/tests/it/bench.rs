//! Every benchmark of `drover bench` runs in the small size and produces its tables. This test does not judge speed.

use std::process::{Command, Stdio};

use serde_json::Value;

#[test]
fn every_benchmark_produces_its_tables() {
    let _alone = crate::alone();
    let out = tempfile::tempdir().unwrap();
    let mut bench = Command::new(crate::LAB);
    bench.args(["bench", "--size", "small", "-o", "json", "--out"]).arg(out.path()).env_remove("DATABASE_URL");
    let output = bench.stdin(Stdio::null()).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tables = report["tables"].as_array().unwrap();
    let names = [
        "machine",
        "decisions",
        "security",
        "plan",
        "burst",
        "idle",
        "fleet",
        "fleet-at-rest",
        "reports-of-agents",
        "restart",
        "latency",
        "rollout",
        "traffic",
        "autoscaler",
        "memory-guard",
    ];
    for name in names {
        let table = tables.iter().find(|table| table["name"] == name).unwrap_or_else(|| panic!("no table {name}: {report:#}"));
        let rows = table["rows"].as_array().unwrap();
        assert!(!rows.is_empty() && !table.to_string().contains("NaN"), "{table:#}");
        assert!(out.path().join(format!("{name}.csv")).is_file());
    }
    assert_eq!(report["checks"], serde_json::json!([]), "the small size has no targets");
    let restart = tables.iter().find(|table| table["name"] == "restart").unwrap();
    assert_eq!(restart["rows"][0][2], "0", "a restart writes nothing to members: {restart:#}");
}
