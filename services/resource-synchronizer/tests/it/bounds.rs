//! A copy's share of bounds over all clusters: written into its autoscalers, confirmed when it is there, kept when nothing is heard.

use drover_api::bindings::{BoundsOrder, DesiredBinding, Phase, PolicyShare};
use drover_testkit::eventually;
use kube::api::{Patch, PatchParams};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::carried::{definition, policies};
use crate::support::{MEMBER, PATIENCE, Stack, binding, deployment};

fn policy() -> Value {
    json!({"apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy",
        "metadata": {"name": "web", "annotations": {"drover.io/bounds": "all-clusters"}},
        "spec": {"policy": "threshold", "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 4, "maxReplicas": 12}})
}

/// The bounds of the policy in the member, and whether it adds no pods.
async fn bounds(stack: &Stack) -> (i64, i64, bool) {
    let spec = &policies(stack, MEMBER).get("web").await.unwrap().data["spec"];
    (spec["minReplicas"].as_i64().unwrap(), spec["maxReplicas"].as_i64().unwrap(), spec["pause"] == "out")
}

async fn order(stack: &Stack, desired: &DesiredBinding, version: i64, min: u32, max: u32) -> StatusCode {
    let share = PolicyShare { kind: "ScalingPolicy".into(), namespace: "default".into(), name: "web".into(), min, max };
    let order = BoundsOrder { version, shares: vec![share] };
    stack.send(Method::PUT, &format!("/internal/bindings/{}/bounds", desired.id), &order).await.0
}

#[tokio::test]
async fn share_is_written_confirmed_and_outlives_an_update_and_a_correction() {
    let stack = Stack::start().await;
    stack.bundle("kinds", vec![definition()]).await;
    let kinds = binding("kinds", "kinds");
    stack.desire(&kinds).await;
    stack.reaches(&kinds, Phase::Ready).await;
    stack.bundle("app", vec![deployment("web", 1, "10m"), policy()]).await;
    let desired = binding("web", "app");
    assert_eq!(order(&stack, &desired, 1, 1, 5).await, StatusCode::NOT_FOUND);
    stack.desire(&desired).await;
    assert_eq!(stack.reaches(&desired, Phase::Ready).await.bounds, None);
    assert_eq!(bounds(&stack).await, (1, 12, true), "without a share it adds no pods");

    assert_eq!(order(&stack, &desired, 2, 1, 5).await, StatusCode::OK);
    let confirmed =
        async |version| eventually(PATIENCE, async || (stack.status(desired.id).await?.bounds == Some(version)).then_some(())).await;
    confirmed(2).await;
    assert_eq!(bounds(&stack).await, (1, 5, false));

    // A late order changes nothing.
    assert_eq!(order(&stack, &desired, 1, 1, 9).await, StatusCode::CONFLICT);
    // Somebody raises the bound in the member: it is corrected to the share.
    let raised = Patch::Merge(json!({"spec": {"maxReplicas": 50}}));
    policies(&stack, MEMBER).patch("web", &PatchParams::default(), &raised).await.unwrap();
    eventually(PATIENCE, async || (bounds(&stack).await == (1, 5, false)).then_some(())).await;

    stack.bundle("app2", vec![deployment("web", 2, "10m"), policy()]).await;
    let updated = DesiredBinding { digest: "app2".into(), fence: 2, ..desired.clone() };
    stack.desire(&updated).await;
    stack.reaches(&updated, Phase::Ready).await;
    assert_eq!(bounds(&stack).await, (1, 5, false), "an update keeps the share");
    order(&stack, &desired, 3, 2, 7).await;
    confirmed(3).await;
    assert_eq!(bounds(&stack).await, (2, 7, false));
}
