//! What an autoscaler has learned goes with the app to another member.

use drover_api::bindings::{DesiredBinding, Phase};
use drover_scheduling::MemberKey;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{MEMBER, Stack, absent, binding, deployment};

const OTHER: &str = "onprem+other";

pub fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "scalingpolicies.drover.io"},
        "spec": {"group": "drover.io", "scope": "Namespaced",
            "names": {"kind": "ScalingPolicy", "plural": "scalingpolicies", "singular": "scalingpolicy"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn policy(name: &str, kind: &str) -> Value {
    json!({"apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": name},
        "spec": {"policy": kind, "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 4}})
}

pub fn policies(stack: &Stack, member: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("drover.io", "v1alpha1", "ScalingPolicy"), "scalingpolicies");
    Api::namespaced_with(stack.sim.client(member), "default", &kind)
}

#[tokio::test]
async fn learned_tables_are_copied_before_the_policy_and_end_with_it() {
    let stack = Stack::start().await;
    stack.add_member(OTHER);
    stack.bundle("kinds", vec![definition()]).await;
    for member in [MEMBER, OTHER] {
        let kinds = DesiredBinding { member: MemberKey(member.into()), ..binding(&format!("kinds-{}", member.len()), "kinds") };
        stack.desire(&kinds).await;
        stack.reaches(&kinds, Phase::Ready).await;
    }
    stack.bundle("app", vec![deployment("web", 1, "10m"), policy("web", "qlearning"), policy("plain", "kpa")]).await;
    let here = binding("web", "app");
    stack.desire(&here).await;
    stack.reaches(&here, Phase::Ready).await;
    let maps = |member: &str| -> Api<ConfigMap> { Api::namespaced(stack.sim.client(member), "default") };
    let learned = |name: &str, table: &str| -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name}, "data": {"v1.json": table, "current": "1"}})).unwrap()
    };
    maps(MEMBER).create(&PostParams::default(), &learned("web-learned", "from here")).await.unwrap();
    maps(MEMBER).create(&PostParams::default(), &learned("plain-learned", "of no learner")).await.unwrap();

    let status = Patch::Merge(json!({"status": {"remembered": {"at": 7}}}));
    policies(&stack, MEMBER).patch_status("plain", &PatchParams::default(), &status).await.unwrap();

    let there = DesiredBinding { member: MemberKey(OTHER.into()), id: uuid::Uuid::new_v4(), ..here.clone() };
    stack.desire(&there).await;
    stack.reaches(&there, Phase::Ready).await;
    let copied = maps(OTHER).get("web-learned").await.unwrap();
    assert_eq!(copied.data.as_ref().unwrap()["v1.json"], "from here");
    let owner = &copied.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("ScalingPolicy", "web"));
    assert!(maps(OTHER).get_opt("plain-learned").await.unwrap().is_none(), "only what learners learned");

    // What the agent here remembers of a policy is in its annotation there, and gone with its next change.
    let carried = async |name: &str| {
        policies(&stack, OTHER).get(name).await.unwrap().metadata.annotations.unwrap_or_default().remove("drover.io/carried")
    };
    assert_eq!((carried("plain").await.as_deref(), carried("web").await), (Some(r#"{"at":7}"#), None));

    // What was learned there since is not written over when the copy moves back.
    let mut newer = copied.clone();
    newer.data = learned("x", "from there").data;
    maps(OTHER).replace("web-learned", &PostParams::default(), &newer).await.unwrap();
    stack.desire(&absent(&here)).await;
    stack.reaches(&absent(&here), Phase::Gone).await;
    let again = DesiredBinding { id: uuid::Uuid::new_v4(), ..here.clone() };
    stack.desire(&again).await;
    stack.reaches(&again, Phase::Ready).await;
    let kept = maps(MEMBER).get("web-learned").await.unwrap();
    assert_eq!(kept.data.unwrap()["v1.json"], "from here", "a table that is there stays");
}
