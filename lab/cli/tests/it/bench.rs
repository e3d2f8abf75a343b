//! Every benchmark of `drover bench` runs in the small size and produces its tables. These tests do not judge speed.

use std::process::{Command, Stdio};

use clap::ValueEnum;
use drover_lab::bench::Measure;
use serde_json::Value;

/// Benchmarks and their tables: in two halves that take about the same time, so that the two tests can run at once.
const HALVES: [&[(&str, &[&str])]; 2] = [
    &[
        ("decisions", &["decisions"]),
        ("plan", &["plan"]),
        ("search", &["search"]),
        ("burst", &["burst"]),
        ("newcomers", &["newcomers"]),
        ("reports", &["reports-of-agents"]),
        ("latency", &["latency"]),
        ("rollout", &["rollout"]),
        // Without a table: it needs minutes.
        ("agents", &[]),
    ],
    &[
        ("security", &["security"]),
        ("idle", &["idle"]),
        ("fleet", &["fleet", "fleet-at-rest"]),
        ("restart", &["restart"]),
        ("traffic", &["traffic"]),
        ("autoscale", &["autoscale"]),
        ("autoscaler", &["autoscaler"]),
        ("memory-guard", &["memory-guard"]),
    ],
];

/// Runs these benchmarks, and returns the report.
fn produce(benchmarks: &[(&str, &[&str])]) -> Value {
    let out = tempfile::tempdir().unwrap();
    let mut bench = Command::new(crate::LAB);
    bench.arg("bench").args(benchmarks.iter().map(|(name, _)| name)).args(["--size", "small", "-o", "json", "--out"]).arg(out.path());
    let output = bench.env_remove("DATABASE_URL").stdin(Stdio::null()).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in benchmarks.iter().flat_map(|(_, tables)| *tables).chain(&["machine"]) {
        let table = table(&report, name);
        let rows = table["rows"].as_array().unwrap();
        assert!(!rows.is_empty() && !table.to_string().contains("NaN"), "{table:#}");
        assert!(out.path().join(format!("{name}.csv")).is_file());
    }
    assert_eq!(report["checks"], serde_json::json!([]), "the small size has no targets");
    report
}

fn table<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = report["tables"].as_array().unwrap().iter().find(|table| table["name"] == name);
    found.unwrap_or_else(|| panic!("no table {name}: {report:#}"))
}

#[test]
fn every_benchmark_of_the_first_half_produces_its_tables() {
    produce(HALVES[0]);
}

#[test]
fn every_benchmark_of_the_second_half_produces_its_tables() {
    let report = produce(HALVES[1]);
    let restart = table(&report, "restart");
    assert_eq!(restart["rows"][0][2], "0", "a restart writes nothing to members: {restart:#}");
}

#[test]
fn halves_have_each_benchmark_once() {
    let mut halves: Vec<String> = HALVES.concat().iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut all: Vec<String> =
        Measure::value_variants().iter().map(|measure| measure.to_possible_value().unwrap().get_name().to_owned()).collect();
    halves.sort();
    all.sort();
    assert_eq!(halves, all);
}
