//! The files in docs/schemas match the types; `DROVER_ACCEPT=1` writes them again.

use std::path::Path;

use drover_autoscaling::offline::{Config, KpaLine, LineDecision, QLearningLine, ThresholdLine};
use drover_autoscaling::qlearning::QTable;
use schemars::{JsonSchema, schema_for};

fn golden<T: JsonSchema>(name: &str) {
    let mut schema = schema_for!(T);
    schema.insert("$id".to_owned(), format!("https://drover.io/schemas/{name}.json").into());
    let made = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(format!("{name}.json"));
    if std::env::var_os("DROVER_ACCEPT").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{} differs from the types; check the difference and run this test with DROVER_ACCEPT=1", path.display());
}

#[test]
fn schema_files_match_the_types() {
    golden::<Config>("autoscale-config");
    golden::<ThresholdLine>("autoscale-threshold-observation");
    golden::<KpaLine>("autoscale-kpa-observation");
    golden::<QLearningLine>("autoscale-qlearning-observation");
    golden::<LineDecision>("autoscale-decision");
    golden::<QTable>("autoscale-q-table");
}

/// The agent's CRD wraps `ScalingSpec`.
#[test]
fn scaling_spec_schema_has_all_fields() {
    let schema = serde_json::to_value(schema_for!(drover_autoscaling::ScalingSpec)).unwrap();
    for field in ["target", "mode", "policy", "minReplicas", "maxReplicas", "behavior", "threshold", "kpa", "qlearning"] {
        assert!(schema["properties"].get(field).is_some(), "{field}");
    }
}
