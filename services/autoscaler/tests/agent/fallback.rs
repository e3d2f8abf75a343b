//! A learner that costs more than the threshold policy beside it is replaced, with a condition and an Event; after a rollback it is tried again.
//! The test uses `drover autoscale`, as a person would.

use std::path::PathBuf;
use std::process::Stdio;

use drover_autoscaler::status::{Change, ConditionType};
use drover_autoscaling::qlearning::QTable;
use drover_testkit::{eventually, needs};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::follow::{at_once, table};
use crate::support::{Agent, PATIENCE, TestNamespace};
use crate::transfer::fake_prometheus;

/// A table that always wants more.
fn greedy() -> QTable {
    let mut table = serde_json::to_value(QTable::new(1, 4)).unwrap();
    table["values"] = (0..4 * 11).flat_map(|_| [-2e6, -1e6, 0.0]).collect();
    serde_json::from_value(table).unwrap()
}

/// `drover autoscale` on the place's cluster.
struct Drover<'a>(PathBuf, &'a TestNamespace);

impl Drover<'_> {
    /// Standard output on success, standard error on failure.
    async fn run(&self, words: &str, more: &[&str]) -> Result<String, String> {
        let mut command = tokio::process::Command::new(&self.0);
        command.arg("autoscale").args(words.split(' ')).args(["-n", &self.1.namespace, "--kubeconfig"]).arg(&self.1.kubeconfig).args(more);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = tokio::time::timeout(PATIENCE, output).await.expect("drover does not end").unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn costly_learner_falls_back_and_rollback_retries_it() {
    let (Some(place), Some(drover)) = (TestNamespace::new("fallback"), needs("DROVER_BIN")) else { return };
    let place = place.await;
    let drover = Drover(drover.into(), &place);
    place.workload("web", 1).await;
    table(&place, "greedy", &greedy()).await;
    // A tenth of the capacity is used, so that four pods cost four times as much as one.
    let source = json!({"prometheus": {"url": fake_prometheus().await, "queries": {"cpu": "0.1", "expired": "7"}}});
    let learner = json!({"initialTable": "greedy", "noise": 0, "alpha": 1e-9});
    let more = json!({"qlearning": learner, "source": source, "shadow": {"window": 10}, "behavior": at_once(), "periodSeconds": 1});
    place.policy("web", "qlearning", "apply", more).await;
    let kubeconfig = place.least_rights().await;
    let mut agent = Agent::start(&place, "agent", &kubeconfig, &[]).await;

    place.reaches("web", |replicas| replicas == 4).await;
    let why = place.condition("web", ConditionType::Learning, "False", "FellBack").await;
    assert!(why.contains("the threshold policy beside it"), "{why}");
    // A tenth of four pods at a target of 80 % is one. By metrics.k8s.io (50m of 100m) it would be two; the learner would stay.
    place.reaches("web", |replicas| replicas == 1).await;
    let events = async || {
        let list = place.api::<Event>().list(&ListParams::default()).await.unwrap();
        let fell = list.items.into_iter().find(|event| event.reason.as_deref() == Some("FellBack"))?;
        (fell.regarding?.name.as_deref() == Some("web")).then_some(fell.note?)
    };
    assert_eq!(eventually(PATIENCE, events).await, why);

    let story = drover.run("explain web", &[]).await.unwrap();
    for part in ["Deployment web: QLearning in mode Apply, 1 to 4 replicas", &format!("NO  Learning (FellBack): {why}"), "3 -> 4", "4 -> "]
    {
        assert!(story.contains(part), "no `{part}` in:\n{story}");
    }
    assert!(drover.run("explain web", &["-o", "wide"]).await.unwrap().contains("\"threshold\": {"), "the record has the inputs");
    let status: Value = serde_json::from_str(&drover.run("explain web", &["-o", "json"]).await.unwrap()).unwrap();
    assert_eq!(status["lastDecision"]["policy"], "threshold", "{status:#}");
    let nobody = drover.run("explain nobody", &[]).await.unwrap_err();
    assert!(nobody.contains("kubectl get scalingpolicies"), "{nobody}");
    let nothing = drover.run("table export nobody", &[]).await.unwrap_err();
    assert!(nothing.contains("has not learned anything yet"), "{nothing}");

    // Without a KPA policy the agent starts no watch that its rights do not allow.
    let forbidden = |line: &str| line.contains("cannot be watched") && line.contains("forbidden");
    assert!(!agent.log().lines().any(forbidden), "{}", agent.log());
    // The next agent continues with the threshold policy.
    agent.signal(Signal::SIGTERM);
    eventually(PATIENCE, async || agent.ended().then_some(())).await;
    assert_eq!(agent.exit_code(), Some(0));
    let _next = Agent::start(&place, "next", &kubeconfig, &[]).await;
    let before = place.status("web").await.decided_at;
    eventually(PATIENCE, async || (place.status("web").await.decided_at > before).then_some(())).await;
    let status = place.status("web").await;
    assert_eq!(status.condition(ConditionType::Learning).unwrap().message, why);
    assert_eq!(status.last_decision.unwrap()["policy"], "threshold");

    // After a rollback to an earlier version the learner is tried again.
    let versions: Vec<u64> = serde_json::from_str(&drover.run("table versions web", &["-o", "json"]).await.unwrap()).unwrap();
    let (first, last) = (versions[0], versions[versions.len() - 1]);
    let kept: QTable = serde_json::from_str(&drover.run("table export web", &[]).await.unwrap()).unwrap();
    kept.check(1, 4).unwrap();
    let wrong = drover.run("table rollback web", &["--to", "4711"]).await.unwrap_err();
    assert!(wrong.contains("4711"), "{wrong}");
    let so_far = place.status("web").await.history.first().unwrap().at;
    let told = drover.run("table rollback web", &["--to", &first.to_string()]).await.unwrap();
    assert!(told.contains(&format!("version {first} is now the current version, as version {}", last + 1)), "{told}");
    // It falls back again soon afterwards.
    let scales_up = |change: &Change| change.at > so_far && change.to == 4 && change.reason == "Learned";
    eventually(PATIENCE, async || place.status("web").await.history.iter().any(scales_up).then_some(())).await;
    place.done().await;
}
