//! A policy that was moved here goes on with what the agent of the other cluster remembered.

use drover_autoscaler::policy::{CARRIED, ScalingPolicy};
use drover_autoscaler::status::ConditionType;
use drover_testkit::eventually;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::{Agent, PATIENCE, Pusher, TestNamespace};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_that_was_moved_here_decides_from_the_windows_of_the_other_cluster() {
    let Some(place) = TestNamespace::new("moved") else { return };
    let place = place.await;
    for name in ["from", "to", "plain"] {
        place.workload(name, 2).await;
    }
    let kpa = json!({"kpa": {"target": 10, "targetUtilization": 1, "stableWindow": 60}, "periodSeconds": 1});
    place.policy("from", "kpa", "apply", kpa.clone()).await;
    let agent = Agent::start(&place, "agent", &place.kubeconfig, &[]).await;
    let _load = Pusher::start(&place, "from", vec![agent.address.clone()], 35.0);
    place.reaches("from", |replicas| replicas == 4).await;
    let remembered: Value = eventually(PATIENCE, async || {
        let remembered = place.status("from").await.remembered?;
        (remembered["windows"]["values"].as_array()?.len() >= 5).then_some(remembered)
    })
    .await;

    // As resource-synchronizer applies it where the app is moved to.
    let mut spec = json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "to"},
        "policy": "kpa", "mode": "apply", "minReplicas": 1, "maxReplicas": 4});
    spec.as_object_mut().unwrap().extend(kpa.as_object().unwrap().clone());
    let annotations = json!({CARRIED: remembered.to_string()});
    let moved = json!({"apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": "to", "annotations": annotations}, "spec": spec});
    place.api::<ScalingPolicy>().patch("to", &PatchParams::apply("drover-tests"), &Patch::Apply(&moved)).await.unwrap();
    place.policy("plain", "kpa", "apply", kpa).await;

    // Nobody reports requests of either.
    place.reaches("to", |replicas| replicas == 4).await;
    place.condition("plain", ConditionType::MetricsRead, "False", "Missing").await;
    assert_eq!(place.replicas("plain").await, 2);
}
