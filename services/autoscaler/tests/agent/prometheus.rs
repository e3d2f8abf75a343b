//! A real Prometheus as the source of all three policies. A lost series, or a Prometheus that is gone, is never treated as zero.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use drover_autoscaler::status::ConditionType;
use drover_testkit::{eventually, free_port};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::follow::{at_once, sensible, table};
use crate::support::{Agent, PATIENCE, TestNamespace};

/// The metrics of the scraped server: concurrent requests, CPU as a share, expired requests in total. Empty: none.
type Said = watch::Sender<String>;

async fn scraped() -> (Said, String, AbortOnDropHandle<()>) {
    let said: Said = watch::Sender::default();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let router =
        Router::new().route("/metrics", get(|State(said): State<Arc<watch::Receiver<String>>>| async move { said.borrow().clone() }));
    let router = router.with_state(Arc::new(said.subscribe()));
    (said, address, AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() })))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: needs Debian's Prometheus (deploy/setup.sh long)"]
async fn prometheus_source_treats_lost_series_as_missing() {
    let Some(place) = TestNamespace::new("prometheus") else { return };
    let place = place.await;
    let (said, target, _server) = scraped().await;
    let say = |queue: f64, cpu: f64| said.send_replace(format!("queue_length {queue}\ncpu_share {cpu}\nexpired_total 3\n"));
    let port = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
    let scrape =
        json!({"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "app", "static_configs": [{"targets": [target]}]}]});
    let config = place.files.path().join("prometheus.yml");
    std::fs::write(&config, scrape.to_string()).unwrap();
    let mut prometheus = tokio::process::Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", config.display())).arg(format!("--web.listen-address={port}"));
    prometheus.arg(format!("--storage.tsdb.path={}", place.files.path().join("tsdb").display()));
    let prometheus = prometheus.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn();
    let mut prometheus = prometheus.expect("Prometheus; as root: deploy/setup.sh long");

    for name in ["thresh", "kpa", "rl"] {
        place.workload(name, 1).await;
    }
    table(&place, "start", &sensible(1, 4)).await;
    let source = |queries: serde_json::Value| json!({"prometheus": {"url": format!("http://{port}"), "queries": queries}});
    let queue =
        json!([{"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}}}]);
    let common = |more: serde_json::Value| {
        let mut all = json!({"behavior": at_once(), "periodSeconds": 1, "staleAfterSeconds": 5});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let thresh = json!({"threshold": {"metrics": queue}, "source": source(json!({"queue": "sum(queue_length)"}))});
    place.policy("thresh", "threshold", "apply", common(thresh)).await;
    let kpa = json!({"target": 10, "targetUtilization": 1, "stableWindow": 6});
    place.policy("kpa", "kpa", "apply", common(json!({"kpa": kpa, "source": source(json!({"value": "sum(queue_length)"}))}))).await;
    let learner = json!({"initialTable": "start", "noise": 0, "alpha": 0.01});
    let queries = json!({"cpu": "avg(cpu_share)", "expired": "sum(expired_total)"});
    place.policy("rl", "qlearning", "apply", common(json!({"qlearning": learner, "source": source(queries)}))).await;

    say(35.0, 0.9);
    let _agent = Agent::start(&place, "agent", &place.least_rights().await, &[]).await;
    for name in ["thresh", "kpa", "rl"] {
        place.reaches(name, |replicas| replicas == 4).await;
        place.condition(name, ConditionType::MetricsRead, "True", "Read").await;
    }
    // Scrapes succeed but have no series: the old values become stale after some seconds, and not zero.
    said.send_replace(String::new());
    for name in ["thresh", "rl"] {
        let why = place.condition(name, ConditionType::MetricsRead, "False", "Missing").await;
        assert!(why.contains("no series"), "{why}");
        assert_eq!(place.replicas(name).await, 4, "{name}");
    }
    say(5.0, 0.05);
    for name in ["thresh", "kpa", "rl"] {
        place.reaches(name, |replicas| replicas == 1).await;
    }
    // An invalid query is reported, and so is a Prometheus that is gone.
    let wrong = json!({"threshold": {"metrics": queue}, "source": source(json!({"queue": "sum(("}))});
    place.policy("thresh", "threshold", "apply", common(wrong)).await;
    eventually(PATIENCE, async || {
        let status = place.status("thresh").await;
        status.condition(ConditionType::MetricsRead).filter(|condition| condition.message.contains("parse error")).map(drop)
    })
    .await;
    prometheus.kill().await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), prometheus.wait()).await.unwrap().unwrap();
    eventually(PATIENCE, async || {
        let status = place.status("rl").await;
        status.condition(ConditionType::MetricsRead).filter(|condition| condition.message.contains("does not answer")).map(drop)
    })
    .await;
    assert_eq!(place.replicas("rl").await, 1);
    place.done().await;
}
