//! What breaks never makes a wrong scale: the API server away, the agent killed around its write, metrics that cannot be read.

use std::path::PathBuf;
use std::time::Duration;

use drover_autoscaler::status::Kind;
use drover_testkit::{ChaosProxy, eventually};
use serde_json::json;

use crate::support::{Agent, PATIENCE, Place, Pusher};

/// A kubeconfig that leads through a proxy that can be cut.
async fn through_a_proxy(place: &Place) -> (ChaosProxy, PathBuf) {
    let text = std::fs::read_to_string(&place.kubeconfig).unwrap();
    let from = &text[text.find("https://").unwrap()..];
    let server = &from[..from.find(|c: char| c.is_whitespace() || "\"',}".contains(c)).unwrap()];
    let proxy = ChaosProxy::start(server.trim_start_matches("https://").parse().unwrap()).await;
    let path = place.files.path().join("proxied");
    std::fs::write(&path, text.replace(server, &format!("https://{}", proxy.address()))).unwrap();
    (proxy, path)
}

/// The API server is away for `away`, and the load falls meanwhile.
async fn away(name: &str, away: Duration) {
    let Some(place) = Place::new(name) else { return };
    let place = place.await;
    place.workload("web", 1).await;
    let kpa = json!({"target": 10, "targetUtilization": 1, "stableWindow": 12});
    place.policy("web", "kpa", "apply", json!({"kpa": kpa, "periodSeconds": 1})).await;
    let (proxy, kubeconfig) = through_a_proxy(&place).await;
    let agent = Agent::start(&place, "agent", &kubeconfig, &[]).await;
    let pushed = Pusher::start(&place, "web", vec![agent.address.clone()], 35.0);
    place.reaches("web", |replicas| replicas == 4).await;

    proxy.cut();
    let since = std::time::Instant::now();
    eventually(PATIENCE, async || (agent.acts().await == Some(false)).then_some(())).await;
    pushed.0.send_replace(5.0);
    eventually(PATIENCE, async || {
        assert_eq!(place.replicas("web").await, 4, "scaled while it could not look");
        (since.elapsed() >= away).then_some(())
    })
    .await;

    // Back again it begins anew: for a stable window nothing is scaled down, then what is too much goes.
    proxy.restore();
    eventually(PATIENCE, async || (agent.acts().await == Some(true)).then_some(())).await;
    place.reaches("web", |replicas| replicas == 1).await;
    let status = place.status("web").await;
    assert!(status.history.iter().all(|change| change.to >= 1), "{status:#?}");
    drop(pushed);
    place.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_away_scales_nothing() {
    away("away", Duration::from_secs(8)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: the API server is away for 60 s"]
async fn an_api_server_that_is_away_for_a_minute_scales_nothing() {
    away("away60", Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_around_its_write_leaves_what_was_asked_for_and_the_next_one_goes_on() {
    let Some(place) = Place::new("killed") else { return };
    let place = place.await;
    place.workload("web", 3).await;
    // CPU cannot be read this early, so what moves it is the bound: current 3 is above 2.
    for (point, replicas) in [("before-write", 3), ("after-write", 2)] {
        place.policy("web", "threshold", "apply", json!({"maxReplicas": 2})).await;
        let mut agent = Agent::spawn(&place, point, &place.kubeconfig, &[("AUTOSCALER_DIE_AT", point)]);
        eventually(PATIENCE, async || agent.ended().then_some(())).await;
        assert_eq!(place.replicas("web").await, replicas, "killed {point}");
    }
    // The next one finds it done. It must wait for the dead one's Lease.
    let agent = Agent::start(&place, "next", &place.kubeconfig, &[]).await;
    eventually(PATIENCE, async || (agent.acts().await == Some(true)).then_some(())).await;
    eventually(PATIENCE, async || place.status("web").await.current_replicas.filter(|current| *current == 2)).await;
    assert_eq!(place.replicas("web").await, 2);
    place.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_policies_lost_targets_and_missing_metrics_scale_nothing_and_say_so() {
    let Some(place) = Place::new("bad") else { return };
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

    let why = place.condition("wrong", Kind::Accepted, "False", "Invalid").await;
    assert!(why.contains("maxReplicas"), "{why}");
    place.condition("lost", Kind::TargetReady, "False", "NotFound").await;
    let why = place.condition("tableless", Kind::Learning, "False", "TableUnusable").await;
    assert!(why.contains("kubectl create configmap"), "{why}");
    let why = place.condition("blind", Kind::MetricsRead, "False", "Missing").await;
    assert!(why.contains("Prometheus does not answer"), "{why}");
    for name in ["blind", "tableless"] {
        assert_eq!(place.replicas(name).await, 2, "{name}");
        assert_eq!(place.status(name).await.desired_replicas, None, "{name}");
    }
    place.done().await;
}
