//! A learned table is saved in versions, a table put in its place is loaded, and a table that does not fit is refused.

use std::collections::BTreeMap;

use drover_autoscaler::agent::tables;
use drover_autoscaler::policy::{ScalingPolicy, TABLE_CHANGED};
use drover_autoscaler::status::ConditionType;
use drover_autoscaling::qlearning::QTable;
use drover_testkit::eventually;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::follow::{sensible, table};
use crate::support::{Agent, PATIENCE, TestNamespace};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn learned_table_is_saved_and_starts_another_policy() {
    let Some(place) = TestNamespace::new("transfer") else { return };
    let place = place.await;
    place.workload("web", 2).await;
    place.workload("other", 2).await;
    table(&place, "start", &sensible(1, 4)).await;
    table(&place, "narrow", &sensible(1, 2)).await;
    // CPU from Prometheus as a constant, so that something is learned in every period.
    let prometheus = fake_prometheus().await;
    let source = json!({"prometheus": {"url": prometheus, "queries": {"cpu": "0.5", "expired": "7"}}});
    let learner = |start: &str| json!({"qlearning": {"initialTable": start, "noise": 0}, "source": source, "periodSeconds": 1});
    place.policy("web", "qlearning", "apply", learner("start")).await;
    place.policy("other", "qlearning", "apply", learner("narrow")).await;
    let mut agent = Agent::start(&place, "agent", &place.kubeconfig, &[]).await;
    place.condition_with("other", ConditionType::Learning, "TableUnusable", "1..2").await;

    // The table is saved after some periods, and again when the agent ends.
    let maps = place.api::<ConfigMap>();
    let learned = async || tables::current(&maps.get_opt("web-learned").await.unwrap()?);
    let first = eventually(PATIENCE * 2, learned).await;
    // By the second decision from here on, something more was learned.
    let (so_far, mut decisions) = (agent.decided(&place, "web").await, std::collections::BTreeSet::new());
    eventually(PATIENCE, async || {
        decisions.insert(agent.decided(&place, "web").await);
        decisions.remove(&so_far);
        (decisions.len() > 2).then_some(())
    })
    .await;
    agent.signal(nix::sys::signal::Signal::SIGTERM);
    let last = eventually(PATIENCE, async || learned().await.filter(|version| *version > first)).await;
    // It gives its Lease up at the end, so that the next one need not wait.
    eventually(PATIENCE, async || agent.ended().then_some(())).await;
    drop(agent);

    // It has the format of `train`, and starts another policy.
    let map = maps.get("web-learned").await.unwrap();
    let mine = tables::version(&map, last).unwrap();
    mine.check(1, 4).unwrap();
    assert_ne!(mine, sensible(1, 4), "nothing was learned");
    table(&place, "handed-on", &mine).await;
    place.policy("other", "qlearning", "apply", learner("handed-on")).await;

    // Another table is put in place while the next agent runs, which continues with it.
    let _agent = Agent::start(&place, "next", &place.kubeconfig, &[]).await;
    place.condition("other", ConditionType::Learning, "True", "Deciding").await;
    let marked = sensible_with_passes(77);
    let put = eventually(PATIENCE, async || {
        let mut map = maps.get("web-learned").await.unwrap();
        let version = tables::put(&mut map, &marked).unwrap();
        maps.replace("web-learned", &PostParams::default(), &map).await.ok().map(|_| version)
    })
    .await;
    let note: BTreeMap<&str, &str> = [(TABLE_CHANGED, "1")].into();
    let patch = json!({"metadata": {"annotations": note}});
    place.api::<ScalingPolicy>().patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let taken_over = eventually(PATIENCE * 2, async || {
        let map = maps.get("web-learned").await.unwrap();
        let version = tables::current(&map).filter(|version| *version > put)?;
        tables::version(&map, version).ok()
    })
    .await;
    assert_eq!(taken_over.passes, 77, "the table that was put in place was overwritten");

    // Somebody deletes it: it is made again.
    maps.delete("web-learned", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE * 2, learned).await;
    place.done().await;
}

fn sensible_with_passes(passes: u32) -> QTable {
    let mut table = sensible(1, 4);
    table.passes = passes;
    table
}

/// A Prometheus that answers every query with the query itself as a scalar.
pub async fn fake_prometheus() -> String {
    use axum::extract::Query;
    use axum::{Json, Router, routing::get};
    let answer = |Query(asked): Query<BTreeMap<String, String>>| async move {
        Json(json!({"status": "success", "data": {"resultType": "scalar", "result": [0.0, asked["query"]]}}))
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/api/v1/query", get(answer))).await });
    format!("http://{address}")
}
