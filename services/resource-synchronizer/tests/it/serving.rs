//! When an app serves: rules over its objects and a least time, on kubesim and on a real API server.

use std::time::{Duration, Instant};

use drover_api::bindings::{DesiredBinding, Phase};
use drover_kubesim::Fault;
use drover_testkit::eventually;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::real::real;
use crate::support::{MEMBER, PATIENCE, Stack, absent, binding, config, deployment, service};

fn with(mut object: Value, annotation: &str, value: &str) -> Value {
    object["metadata"]["annotations"][annotation] = value.into();
    object
}

const WARM: &str = "'example.com/warm' in object.metadata.annotations";

fn warm() -> Value {
    json!({"metadata": {"annotations": {"example.com/warm": "yes"}}})
}

/// Waits until the binding is applied but does not serve, for a reason that contains this text.
async fn waits(stack: &Stack, desired: &DesiredBinding, why: &str) {
    let waits = async || {
        let status = stack.status(desired.id).await.filter(|status| status.digest == desired.digest)?;
        assert_ne!(status.phase, Phase::Ready, "{status:?}");
        (status.phase == Phase::Applied && status.reason?.contains(why)).then_some(())
    };
    eventually(PATIENCE, waits).await;
}

#[tokio::test]
async fn app_serves_when_the_rules_of_its_objects_are_true() {
    let stack = Stack::start().await;
    let web = with(deployment("web", 1, "100m"), "drover.io/serving-when", &format!("object.status.readyReplicas >= 1 && {WARM}"));
    // Of this kind only the metadata is watched.
    let settings = with(config("settings", "1"), "drover.io/serving-when", &format!("object.data.size() > 0 && {WARM}"));
    stack.bundle("b1", vec![web, settings]).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    waits(&stack, &desired, "web does not serve yet").await;
    stack.merge::<Deployment>("web", warm()).await;
    waits(&stack, &desired, "settings does not serve yet").await;
    stack.merge::<ConfigMap>("settings", warm()).await;
    stack.reaches(&desired, Phase::Ready).await;

    // An update waits too, and what the older version had stays until then.
    stack.bundle("b2", vec![with(config("later", "1"), "drover.io/serving-when", WARM)]).await;
    let newer = DesiredBinding { digest: "b2".into(), fence: 2, ..desired };
    stack.desire(&newer).await;
    waits(&stack, &newer, "later does not serve yet").await;
    assert!(stack.names().await.contains(&"Deployment/web".to_owned()));
    stack.merge::<ConfigMap>("later", warm()).await;
    stack.reaches(&newer, Phase::Ready).await;
    eventually(PATIENCE, async || (stack.names().await == ["ConfigMap/later"]).then_some(())).await;
}

#[tokio::test]
async fn app_serves_when_everything_has_been_ready_for_the_time_that_it_asks() {
    const AFTER: Duration = Duration::from_secs(3);
    let mut stack = Stack::start().await;
    stack.bundle("b1", vec![with(config("web", "1"), "drover.io/serving-after", "3s")]).await;
    let desired = binding("shop", "b1");
    let begun = Instant::now();
    stack.desire(&desired).await;
    // On a slow machine the time may be over before anybody looks.
    eventually(PATIENCE, async || {
        let status = stack.status(desired.id).await.filter(|status| status.digest == desired.digest)?;
        if status.phase == Phase::Ready {
            assert!(begun.elapsed() >= AFTER, "{:?}", begun.elapsed());
            return Some(());
        }
        (status.phase == Phase::Applied && status.reason?.contains("have been for 3 s")).then_some(())
    })
    .await;
    let status = stack.reaches(&desired, Phase::Ready).await;
    assert!(begun.elapsed() >= AFTER, "{:?}", begun.elapsed());
    assert_eq!(status.serving_after, 3);

    // The time counts once for each version: after a restart of the service the app serves at once.
    stack.restart().await;
    eventually(PATIENCE, async || {
        let status = stack.status(desired.id).await?;
        assert_ne!(status.phase, Phase::Applied, "{status:?}");
        (status.phase == Phase::Ready).then_some(())
    })
    .await;

    let begun = Instant::now();
    stack.bundle("b2", vec![with(config("web", "2"), "drover.io/serving-after", "3s")]).await;
    let newer = DesiredBinding { digest: "b2".into(), fence: 2, ..desired };
    stack.desire(&newer).await;
    stack.reaches(&newer, Phase::Ready).await;
    assert!(begun.elapsed() >= AFTER, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn custom_resource_serves_when_its_controller_says_so() {
    let Some(stack) = real() else { return };
    let stack = stack.await;
    let namespace = format!("drover-serving-{}", std::process::id());
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let names = json!({"plural": "lakes", "singular": "lake", "kind": "Lake", "listKind": "LakeList"});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}}]);
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "lakes.serving.drover.test"},
        "spec": {"group": "serving.drover.test", "scope": "Namespaced", "names": names, "versions": versions}});
    let lake = json!({"apiVersion": "serving.drover.test/v1", "kind": "Lake", "metadata": {"name": "x"}, "spec": {"size": 1}});
    let lake = with(lake, "drover.io/serving-when", "object.status.conditions.exists(c, c.type == 'Full' && c.status == 'True')");
    stack.bundle("b1", vec![definition, lake]).await;
    let desired = DesiredBinding { namespace: namespace.clone(), ..binding("serving", "b1") };
    stack.desire(&desired).await;
    waits(&stack, &desired, "x does not serve yet").await;

    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("serving.drover.test", "v1", "Lake"));
    let api: Api<DynamicObject> = Api::namespaced_with(stack.client(), &namespace, &resource);
    let full = json!({"status": {"conditions": [{"type": "Full", "status": "True"}]}});
    api.patch_status("x", &PatchParams::default(), &Patch::Merge(full)).await.unwrap();
    stack.reaches(&desired, Phase::Ready).await;

    stack.desire(&absent(&desired)).await;
    stack.reaches(&absent(&desired), Phase::Gone).await;
    let _ = Api::<Namespace>::all(stack.client()).delete(&namespace, &DeleteParams::default()).await;
}

#[tokio::test]
async fn app_serves_when_its_service_answers_the_request_that_it_names() {
    let mut stack = Stack::start().await;
    let mut web = service("web");
    web["metadata"]["annotations"] = json!({"drover.io/serving-http": "/ready"});
    stack.bundle("b1", vec![deployment("web", 1, "100m"), web]).await;
    let faulty = Fault::Path { contains: "/services/web:80/proxy/ready".into(), writes: false, code: 500 };
    stack.sim.fault(MEMBER, faulty);
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    let why = async || {
        let status = stack.status(desired.id).await?;
        status.reason.filter(|reason| reason.contains("drover.io/serving-http: Service web, port 80, /ready: answers 500"))
    };
    eventually(PATIENCE, why).await;
    assert_eq!(stack.status(desired.id).await.unwrap().phase, Phase::Applied);
    stack.sim.clear_faults(MEMBER);
    stack.reaches(&desired, Phase::Ready).await;
    // Once it has served it is not asked again, also after a restart.
    stack.sim.fault(MEMBER, Fault::Path { contains: "/proxy/ready".into(), writes: false, code: 500 });
    stack.kill();
    stack.restart().await;
    stack.reaches(&desired, Phase::Ready).await;
}
