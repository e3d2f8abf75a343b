//! What the agent takes off again when an app does not ask for scale to zero any more while nobody answers the API server, and whose objects it
//! leaves alone.

use drover_autoscaler::policy::ScalingPolicy;
use drover_autoscaling::to_zero::{SCALE_TO_ZERO, is_expanded};
use drover_testkit::eventually;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::{PATIENCE, TestNamespace};
use crate::webhook::{answering, app, apply, configured, containers, found, free_address, is_whole};

/// Lets nobody delete the ScalingPolicy of this app, as a policy of an organisation may. Returns the name of the rule.
async fn protected(place: &TestNamespace, app: &str) -> String {
    let name = format!("keep-{}", place.namespace);
    let rule = json!({"apiGroups": ["drover.io"], "apiVersions": ["v1alpha1"], "operations": ["DELETE"], "resources": ["scalingpolicies"]});
    let matched = json!({"resourceRules": [rule], "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}}});
    let validation = json!({"expression": format!("oldObject.metadata.name != '{app}'"), "message": "it is to stay"});
    let version = "admissionregistration.k8s.io/v1";
    let policy = json!({"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"failurePolicy": "Fail", "matchConstraints": matched, "validations": [validation]}});
    let binding = json!({"apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]}});
    for object in [policy, binding] {
        apply(place, object).await;
    }
    let trial = DeleteParams { dry_run: true, ..DeleteParams::default() };
    eventually(PATIENCE, async || place.api::<ScalingPolicy>().delete(app, &trial).await.is_err().then_some(())).await;
    name
}

/// Takes the annotation off a Deployment.
async fn not_asked(place: &TestNamespace, name: &str, more: Value) {
    let mut patch = json!({"metadata": {"annotations": {SCALE_TO_ZERO: null}}});
    patch.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    place.api::<Deployment>().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// Waits until an app is as it was before it asked for scale to zero.
async fn is_plain(place: &TestNamespace, name: &str) -> Value {
    eventually(PATIENCE, async || {
        let (deployment, service) = (found::<Deployment>(place, name).await?, found::<Service>(place, name).await?);
        let left = found::<Service>(place, &format!("{name}-pods")).await.is_some()
            || found::<EndpointSlice>(place, &format!("{name}-drover")).await.is_some();
        let leads = service["spec"]["selector"] == json!({"app": name}) && !is_expanded(&service);
        (containers(&deployment) == ["app"] && leads && !left).then_some(deployment)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undo_goes_on_where_it_stopped_and_touches_nothing_of_others() {
    let Some(place) = TestNamespace::new("undo") else { return };
    let place = place.await;
    let address = free_address();
    let name = configured(&place, &address).await;
    let agent = answering(&place, &address, &name).await;
    // Objects of somebody else have the names of those that would be added.
    let resource = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "taken"});
    let own = json!({"apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": "taken", "namespace": place.namespace},
        "spec": {"target": resource, "policy": "threshold", "mode": "recommend", "maxReplicas": 7}});
    let own_pods = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "used-pods", "namespace": place.namespace},
        "spec": {"selector": {"app": "somebody"}, "ports": [{"port": 5432}]}});
    for object in [own, own_pods] {
        apply(&place, object).await;
    }
    let others = async || {
        let (policy, service) =
            (found::<ScalingPolicy>(&place, "taken").await.unwrap(), found::<Service>(&place, "used-pods").await.unwrap());
        [policy, service].map(|object| json!([object["spec"], object["metadata"]["labels"], object["metadata"]["ownerReferences"]]))
    };
    let before = others().await;
    for name in ["a", "b"] {
        for object in app(&place, name, Some("max=3")) {
            apply(&place, object).await;
        }
    }
    is_whole(&place, "a").await;
    is_whole(&place, "b").await;
    // These get their sidecar when they are admitted, and never become whole.
    for name in ["taken", "used"] {
        let [deployment, service] = app(&place, name, Some("max=3"));
        apply(&place, service).await;
        eventually(PATIENCE, async || is_expanded(&apply(&place, deployment.clone()).await).then_some(())).await;
    }
    for why in ["there is a ScalingPolicy taken already", "there is a Service used-pods already"] {
        eventually(PATIENCE, async || agent.log().contains(why).then_some(())).await;
    }

    // From now on nobody is asked; the first app cannot be undone as a whole.
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(place.client.clone());
    configurations.delete(&name, &DeleteParams::default()).await.unwrap();
    let rule = protected(&place, "a").await;
    // Somebody has made the policy of the second one his own.
    let mine = Patch::Merge(json!({"metadata": {"labels": {"drover.io/made-by": null}}}));
    place.api::<ScalingPolicy>().patch("b", &PatchParams::default(), &mine).await.unwrap();
    not_asked(&place, "a", json!({"spec": {"replicas": 0}})).await;
    for name in ["b", "taken", "used"] {
        not_asked(&place, name, json!({})).await;
    }
    is_plain(&place, "b").await;
    assert!(found::<ScalingPolicy>(&place, "b").await.is_some(), "it is somebody's own now");
    eventually(PATIENCE, async || {
        let service = found::<Service>(&place, "a").await?;
        let leads = service["spec"]["selector"] == json!({"app": "a"});
        (leads && agent.log().contains("ScalingPolicy a cannot be deleted")).then_some(())
    })
    .await;
    assert!(is_expanded(&found::<Service>(&place, "a").await.unwrap()), "what is left is found by its mark");

    Api::<ValidatingAdmissionPolicyBinding>::all(place.client.clone()).delete(&rule, &DeleteParams::default()).await.unwrap();
    let deployment = is_plain(&place, "a").await;
    assert_eq!(deployment["spec"]["replicas"], 1, "without a pod nobody would be served");
    assert!(found::<ScalingPolicy>(&place, "a").await.is_none());
    for name in ["taken", "used"] {
        let plain = async || (containers(&found::<Deployment>(&place, name).await?) == ["app"]).then_some(());
        eventually(PATIENCE, plain).await;
    }
    assert!(found::<Service>(&place, "taken-pods").await.is_none(), "what was made for it goes, too");
    assert_eq!(others().await, before, "they are left alone");
    Api::<ValidatingAdmissionPolicy>::all(place.client.clone()).delete(&rule, &DeleteParams::default()).await.unwrap();
    drop(agent);
    place.done().await;
}
