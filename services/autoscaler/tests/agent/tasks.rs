//! The agent's background tasks are supervised: after a panic they run again, or the process ends and says which task failed.

use drover_testkit::eventually;
use serde_json::json;

use crate::support::{Agent, PATIENCE, Pusher, TestNamespace};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_panic_run_again_and_are_counted() {
    let Some(place) = TestNamespace::new("panics") else { return };
    let place = place.await;
    place.workload("web", 1).await;
    let kpa = json!({"target": 10, "targetUtilization": 1, "stableWindow": 6});
    place.policy("web", "kpa", "apply", json!({"kpa": kpa, "periodSeconds": 1})).await;
    let panics = format!("election,scaling,path-keeper,policy/{}/web", place.namespace);
    let agent = Agent::start(&place, "agent", &place.kubeconfig, &[("DROVER_PANIC_TASKS", &panics)]).await;
    let _pushed = Pusher::start(&place, "web", vec![agent.address.clone()], 25.0);
    place.reaches("web", |replicas| replicas == 3).await;
    for task in ["election", "scaling", "path-keeper", "policy"] {
        let counted = format!("drover_autoscaler_task_failures_total{{task=\"{task}\"}} 1");
        eventually(PATIENCE, async || agent.metrics().await?.contains(&counted).then_some(())).await;
    }
    place.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_ends_with_the_name_of_a_task_that_cannot_run_again() {
    let Some(place) = TestNamespace::new("fatal") else { return };
    let place = place.await;
    place.workload("web", 1).await;
    place.policy("web", "kpa", "apply", json!({"kpa": {"target": 10}, "periodSeconds": 1})).await;
    let mut agent = Agent::spawn(&place, "agent", &place.kubeconfig, &[("DROVER_PANIC_TASKS", "path-watch")]);
    let code = eventually(PATIENCE, async || agent.exit_code()).await;
    assert_eq!(code, 1, "{}", agent.log());
    assert!(agent.log().contains("task path-watch failed: panicked"), "{}", agent.log());
    place.done().await;
}
