//! Mode `off` decides nothing, whatever the bounds are; in mode `apply` the same policy scales.

use std::collections::BTreeSet;

use drover_autoscaler::status::ConditionType;
use drover_testkit::eventually;
use serde_json::json;

use crate::support::{Agent, PATIENCE, TestNamespace};

/// Waits until the agent has made three more decisions for the policy `clock`.
async fn three_decisions(agent: &Agent, place: &TestNamespace) {
    let mut seen = BTreeSet::new();
    eventually(PATIENCE, async || {
        seen.extend(agent.decided(place, "clock").await);
        (seen.len() > 3).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mode_off_decides_nothing() {
    let Some(place) = TestNamespace::new("off") else { return };
    let place = place.await;
    place.workload("web", 3).await;
    place.workload("clock", 3).await;
    // More replicas than the bounds allow, which is decided at the first observation, without metrics.
    let web = async |mode: &str, most: i32| place.policy("web", "threshold", mode, json!({"maxReplicas": most, "periodSeconds": 1})).await;
    web("off", 2).await;
    place.policy("clock", "threshold", "apply", json!({"maxReplicas": 2, "periodSeconds": 1})).await;
    let agent = Agent::start(&place, "agent", &place.kubeconfig, &[]).await;

    place.condition("web", ConditionType::Accepted, "True", "Off").await;
    place.reaches("clock", |replicas| replicas == 2).await;
    three_decisions(&agent, &place).await;
    assert_eq!((place.replicas("web").await, agent.decided(&place, "web").await), (3, None));

    web("apply", 2).await;
    place.reaches("web", |replicas| replicas == 2).await;
    web("off", 1).await;
    place.condition("web", ConditionType::Accepted, "True", "Off").await;
    three_decisions(&agent, &place).await;
    let status = place.status("web").await;
    assert_eq!((place.replicas("web").await, agent.decided(&place, "web").await, status.desired_replicas), (2, None, None));
    let kept = status.history.iter().all(|change| (change.from, change.to) == (3, 2)) && !status.history.is_empty();
    assert!(kept, "the history is kept: {:?}", status.history);
    place.done().await;
}
