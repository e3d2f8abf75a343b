//! Failures never cause a wrong scaling: an API server outage, an agent killed around its write, metrics that cannot be read.

use std::path::PathBuf;

use drover_autoscaler::status::ConditionType;
use drover_testkit::{ChaosProxy, eventually};
use serde_json::json;

use crate::support::{Agent, PATIENCE, Pusher, SHORT_LEASE, TestNamespace};

/// A kubeconfig for a connection through a proxy that can be cut.
async fn through_a_proxy(place: &TestNamespace) -> (ChaosProxy, PathBuf) {
    let text = std::fs::read_to_string(&place.kubeconfig).unwrap();
    let from = &text[text.find("https://").unwrap()..];
    let server = &from[..from.find(|c: char| c.is_whitespace() || "\"',}".contains(c)).unwrap()];
    let proxy = ChaosProxy::start(server.trim_start_matches("https://").parse().unwrap()).await;
    let path = place.files.path().join("proxied");
    std::fs::write(&path, text.replace(server, &format!("https://{}", proxy.address()))).unwrap();
    (proxy, path)
}

/// Cuts the agent off until it has tried `attempts` times to reach the API server; the load falls meanwhile.
async fn outage(name: &str, attempts: u64) {
    let Some(place) = TestNamespace::new(name) else { return };
    let place = place.await;
    place.workload("web", 1).await;
    let kpa = json!({"target": 10, "targetUtilization": 1, "stableWindow": 12});
    place.policy("web", "kpa", "apply", json!({"kpa": kpa, "periodSeconds": 1})).await;
    let (proxy, kubeconfig) = through_a_proxy(&place).await;
    let agent = Agent::start(&place, "agent", &kubeconfig, &[SHORT_LEASE]).await;
    let pushed = Pusher::start(&place, "web", vec![agent.address.clone()], 35.0);
    place.reaches("web", |replicas| replicas == 4).await;
    eventually(PATIENCE, async || agent.scalings().await.filter(|count| *count > 0)).await;

    proxy.cut();
    eventually(PATIENCE, async || (agent.acts().await == Some(false)).then_some(())).await;
    pushed.0.send_replace(5.0);
    let refused = proxy.refused();
    eventually(PATIENCE, async || {
        assert_eq!(place.replicas("web").await, 4, "scaled during the outage");
        (proxy.refused() >= refused + attempts).then_some(())
    })
    .await;

    // After the outage nothing is scaled down for a stable window (12 s); then the surplus pods go.
    let restored = jiff::Timestamp::now();
    proxy.restore();
    eventually(PATIENCE, async || (agent.acts().await == Some(true)).then_some(())).await;
    place.reaches("web", |replicas| replicas == 1).await;
    let down = eventually(PATIENCE, async || {
        let history = place.status("web").await.history;
        history.first().filter(|newest| newest.to == 1)?;
        history.into_iter().filter(|change| change.to < change.from).map(|change| change.at).min()
    })
    .await;
    assert!(down.duration_since(restored).as_secs() >= 12, "scaled down {} after the outage", down.duration_since(restored));
    // The outage began as soon as the agent knew of the 4 replicas, perhaps before it could write the status.
    let history = place.status("web").await.history;
    assert!(history.iter().any(|change| change.to == 4), "{history:?}");
    drop(pushed);
    place.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_server_outage_scales_nothing() {
    outage("outage", 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: the API server is unavailable for about a minute"]
async fn long_api_server_outage_scales_nothing() {
    outage("outage-long", 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_killed_around_its_write_leaves_replicas_consistent() {
    let Some(place) = TestNamespace::new("killed") else { return };
    let place = place.await;
    place.workload("web", 3).await;
    // CPU cannot be read this early, so that the maximum decides: the current 3 is above 2.
    for (point, replicas) in [("before-write", 3), ("after-write", 2)] {
        place.policy("web", "threshold", "apply", json!({"maxReplicas": 2})).await;
        let mut agent = Agent::spawn(&place, point, &place.kubeconfig, &[SHORT_LEASE, ("AUTOSCALER_DIE_AT", point)]);
        eventually(PATIENCE, async || agent.ended().then_some(())).await;
        assert_eq!(place.replicas("web").await, replicas, "killed {point}");
    }
    // The next agent finds the replicas written. It must wait until the Lease of the killed agent expires.
    let agent = Agent::start(&place, "next", &place.kubeconfig, &[SHORT_LEASE]).await;
    eventually(PATIENCE, async || (agent.acts().await == Some(true)).then_some(())).await;
    eventually(PATIENCE, async || place.status("web").await.current_replicas.filter(|current| *current == 2)).await;
    assert_eq!(place.replicas("web").await, 2);
    place.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_policies_and_missing_inputs_scale_nothing_and_set_conditions() {
    let Some(place) = TestNamespace::new("bad") else { return };
    let place = place.await;
    place.workload("blind", 2).await;
    place.policy("wrong", "threshold", "apply", json!({"minReplicas": 5, "maxReplicas": 2})).await;
    place.policy("lost", "threshold", "apply", json!({})).await;
    place.policy("tableless", "qlearning", "apply", json!({"qlearning": {"initialTable": "none"}})).await;
    place.workload("tableless", 2).await;
    let named = json!({"metric": {"name": "queue"}, "target": {"type": "Value", "value": "5"}});
    let metrics = json!([{"type": "External", "external": named}]);
    let prometheus = json!({"url": "http://127.0.0.1:9", "queries": {"queue": "sum(queue)"}});
    place.policy("blind", "threshold", "apply", json!({"threshold": {"metrics": metrics}, "source": {"prometheus": prometheus}})).await;
    let _agent = Agent::start(&place, "agent", &place.kubeconfig, &[]).await;

    let why = place.condition("wrong", ConditionType::Accepted, "False", "Invalid").await;
    assert!(why.contains("maxReplicas"), "{why}");
    place.condition("lost", ConditionType::TargetReady, "False", "NotFound").await;
    place.condition_with("tableless", ConditionType::Learning, "TableUnusable", "kubectl create configmap").await;
    place.condition_with("blind", ConditionType::MetricsRead, "Missing", "Prometheus does not answer").await;
    for name in ["blind", "tableless"] {
        assert_eq!(place.replicas(name).await, 2, "{name}");
        assert_eq!(place.status(name).await.desired_replicas, None, "{name}");
    }
    place.done().await;
}
