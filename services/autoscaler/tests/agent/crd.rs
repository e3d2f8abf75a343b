//! deploy/autoscaler/crd.yaml matches the types; `DROVER_ACCEPT=1` writes it again.

use std::path::Path;

use drover_autoscaler::policy::{Plan, definition};
use serde_json::json;

#[test]
fn crd_file_matches_the_types() {
    let head = "# Made from services/autoscaler/src/policy.rs by `DROVER_ACCEPT=1 cargo test --workspace --test agent`.\n";
    let made = head.to_owned() + &serde_yaml::to_string(&definition()).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/autoscaler/crd.yaml");
    if std::env::var_os("DROVER_ACCEPT").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{} differs from the types; run this test with DROVER_ACCEPT=1", path.display());
}

#[test]
fn plan_refuses_invalid_specs_and_names_the_field() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    for (spec, word) in [
        (json!({"target": target, "policy": "threshold", "minReplicas": 5, "maxReplicas": 2}), "maxReplicas"),
        (json!({"target": target, "policy": "qlearning", "minReplicas": 0, "maxReplicas": 2}), "minReplicas"),
        (json!({"target": target, "policy": "kpa", "maxReplicas": 2, "kpa": {"stableWindow": 1}}), "stableWindow"),
        (json!({"target": target, "policy": "threshold", "maxReplicas": 2, "pin": 9}), "pin"),
        (
            json!({"target": target, "policy": "threshold", "maxReplicas": 2, "source": {"prometheus": {"url": "nowhere", "queries": {}}}}),
            "url",
        ),
        (json!({"target": target, "policy": "threshold", "maxReplicas": "many"}), "spec"),
    ] {
        let why = Plan::of(&spec).unwrap_err();
        assert!(why.contains(word), "{spec} is refused with `{why}`");
    }
}
