//! Which apps are moved: policies and algorithms, with the CPU use that the members report.

use drover_e2e::apps::App;
use drover_e2e::emco::Group;
use drover_e2e::{System, scenario, succeeded};
use serde_json::{Value, json};

const POLICIES: &str = "/v2/projects/e2e/migration-policies";

/// `quiet` uses the least CPU but is half of an application; `alone` uses more and is a whole application.
async fn policies_choose_by_reported_cpu_use(system: &System) {
    let a_or_c = ["onprem/private-a", "aws/public-c"];
    let pair = vec![App::new("quiet", 1000).uses(50), App::new("loud", 1000).uses(900)];
    succeeded(&Group::of("pair", pair).on(&a_or_c).movable(5).deploy(&system.client).await.unwrap());
    succeeded(&Group::new("alone", App::new("alone", 1000).uses(300)).on(&a_or_c).movable(5).deploy(&system.client).await.unwrap());
    succeeded(
        &Group::new("pinned", App::new("pinned", 1000).uses(10)).on(&["onprem/private-a"]).pinned().deploy(&system.client).await.unwrap(),
    );
    Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-a"]).approve(&system.client).await.unwrap();
    system.cpu_use_is_known().await;

    let order = json!({"mode": "order", "active": true, "algorithms": [{"algorithm": "CPUUtilization"}, {"algorithm": "Dispersion"}]});
    policy(system, "busy-last", order).await;
    let chosen = plan(system).await;
    assert_eq!(victims(&chosen), ["quiet"], "{chosen}");
    let scores = chosen["plan"]["candidates"].to_string();
    assert!(scores.contains("CPUUtilization"), "{scores}");

    let scoring = json!({"mode": "scoring", "active": true, "algorithms": [
        {"algorithm": "CPUUtilization", "weight": 1.0}, {"algorithm": "Dispersion", "weight": 3.0},
    ]});
    policy(system, "busy-last", scoring).await;
    let chosen = plan(system).await;
    assert_eq!(victims(&chosen), ["alone"], "{chosen}");

    let algorithm = json!({"metadata": {"name": "Busiest"}, "spec": {"expression": "cpu_used * 100.0 / cpu_requested", "prefer": "high"}});
    system.client.post("/v2/migration-algorithms", Some(&algorithm)).await.unwrap();
    policy(system, "busy-last", json!({"mode": "order", "active": true, "algorithms": [{"algorithm": "Busiest"}]})).await;
    let chosen = plan(system).await;
    assert_eq!(victims(&chosen), ["loud"], "{chosen}");

    let test = json!({"project": "e2e", "policy": "busy-last", "member": "onprem+private-a"});
    let tested = system.client.post("/v2/policy-tests", Some(&test)).await.unwrap().body;
    assert_eq!(tested["candidates"][0]["app"], "loud", "{tested}");
}
scenario!(policies_choose_by_reported_cpu_use);

async fn policy(system: &System, name: &str, spec: Value) {
    system.client.upsert(POLICIES, name, &json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
}

async fn plan(system: &System) -> Value {
    let wish = json!({
        "kind": "newcomer", "project": "e2e", "compositeApp": "newcomer",
        "compositeAppVersion": "v1", "deploymentIntentGroup": "newcomer",
    });
    system.client.post("/v2/plans", Some(&wish)).await.unwrap().body
}

fn victims(plan: &Value) -> Vec<String> {
    let waves = plan["plan"]["waves"].as_array().into_iter().flatten();
    waves.flat_map(|w| w.as_array().into_iter().flatten()).map(|m| m["app"].as_str().unwrap_or_default().to_owned()).collect()
}
