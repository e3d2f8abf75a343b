//! All three policies follow a load up and down.

use drover_autoscaler::status::ConditionType;
use drover_autoscaling::qlearning::QTable;
use drover_testkit::eventually;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::support::{Agent, PATIENCE, Pusher, TestNamespace};

/// No stabilisation window, so that the test need not wait five minutes.
pub fn at_once() -> Value {
    json!({"scaleDown": {"stabilizationWindowSeconds": 0}})
}

/// A table that adds pods from bucket 7 on, and removes pods up to bucket 3.
pub fn sensible(min: i32, max: i32) -> QTable {
    let mut table = serde_json::to_value(QTable::new(min, max)).unwrap();
    let values = (min..=max).flat_map(|_| {
        (0..11).flat_map(|bucket| match bucket {
            0..=3 => [0.0, -100.0, -200.0],
            4..=6 => [-100.0, 0.0, -100.0],
            _ => [-200.0, -100.0, 0.0],
        })
    });
    table["values"] = values.collect();
    serde_json::from_value(table).unwrap()
}

pub async fn table(place: &TestNamespace, name: &str, table: &QTable) {
    let data = json!({"metadata": {"name": name}, "data": {"table.json": serde_json::to_string(table).unwrap()}});
    let map: ConfigMap = serde_json::from_value(data).unwrap();
    place.api().create(&PostParams::default(), &map).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_policies_follow_load_up_and_down() {
    let Some(place) = TestNamespace::new("follow") else { return };
    let place = place.await;
    for name in ["thresh", "kpa", "rl"] {
        place.workload(name, 1).await;
    }
    table(&place, "start", &sensible(1, 4)).await;
    let cpu = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]);
    place.policy("thresh", "threshold", "apply", json!({"behavior": at_once(), "threshold": {"metrics": cpu}})).await;
    let kpa = json!({"target": 10, "targetUtilization": 1, "stableWindow": 6});
    place.policy("kpa", "kpa", "apply", json!({"kpa": kpa, "periodSeconds": 1})).await;
    let learner = json!({"initialTable": "start", "noise": 0, "alpha": 0.01});
    place.policy("rl", "qlearning", "apply", json!({"behavior": at_once(), "qlearning": learner})).await;

    // With only the rights of the manifest.
    let agent = Agent::start(&place, "agent", &place.least_rights().await, &[]).await;
    let pushed = Pusher::start(&place, "kpa", vec![agent.address.clone()], 35.0);
    let (thresh, thresh_task) = place.load("thresh");
    let (rl, rl_task) = place.load("rl");
    thresh.send_replace(160);
    rl.send_replace(250);

    assert_eq!(place.reaches("kpa", |replicas| replicas == 4).await, 4, "35 at once, 10 each");
    place.reaches("thresh", |replicas| replicas >= 3).await;
    place.reaches("rl", |replicas| replicas >= 3).await;
    for name in ["thresh", "kpa"] {
        place.condition(name, ConditionType::MetricsRead, "True", "Read").await;
    }
    // Expired requests are not reported: the learner decides, and reports that it learns nothing.
    place.condition("rl", ConditionType::MetricsRead, "False", "Partly").await;
    place.condition("rl", ConditionType::Learning, "True", "Deciding").await;

    pushed.0.send_replace(3.0);
    thresh.send_replace(20);
    rl.send_replace(20);
    for name in ["thresh", "kpa", "rl"] {
        place.reaches(name, |replicas| replicas == 1).await;
        let status = place.status(name).await;
        assert!(status.history.iter().any(|change| change.done && change.from < change.to), "{name}: {status:#?}");
    }
    // A decision that was made when the metrics did not come in time has none.
    eventually(PATIENCE, async || {
        let record = place.status("thresh").await.last_decision?;
        record["inputs"]["threshold"]["pods"]["value"].is_array().then_some(())
    })
    .await;
    thresh_task.abort();
    rl_task.abort();
    place.done().await;
}
