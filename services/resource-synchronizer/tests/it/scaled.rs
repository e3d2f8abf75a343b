//! Who owns `spec.replicas`: the field manager that changed it last, on kubesim and on a real API server.

use drover_api::bindings::{DesiredBinding, Phase};
use drover_testkit::eventually;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::real::real;
use crate::support::{PATIENCE, Stack, absent, binding, deployment};

/// Where the workload `web` of a stack is.
struct Place {
    stack: Stack,
    namespace: String,
}

impl Place {
    async fn simulated() -> Self {
        Self { stack: Stack::start().await, namespace: "default".to_owned() }
    }

    fn workloads(&self) -> Api<Deployment> {
        Api::namespaced(self.stack.client(), &self.namespace)
    }

    fn binding(&self, digest: &str, fence: i64, id: Option<uuid::Uuid>) -> DesiredBinding {
        let made = binding("scaled", digest);
        DesiredBinding { namespace: self.namespace.clone(), fence, id: id.unwrap_or(made.id), ..made }
    }

    async fn replicas(&self) -> Option<i32> {
        self.workloads().get("web").await.unwrap().spec.unwrap().replicas
    }

    /// Scales as an HPA does, by the scale subresource, under its field manager.
    async fn scale(&self, manager: &str, replicas: i32) {
        let params = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        self.workloads().patch_scale("web", &params, &Patch::Merge(json!({"spec": {"replicas": replicas}}))).await.unwrap();
    }

    /// Waits until the status names who has chosen this number.
    async fn says(&self, desired: &DesiredBinding, by: &str, replicas: i32) {
        eventually(PATIENCE, async || {
            let status = self.stack.status(desired.id).await?;
            status.scaled.iter().any(|scaled| (scaled.by.as_str(), scaled.replicas) == (by, replicas)).then_some(())
        })
        .await;
    }
}

fn image(name: &str, mut workload: Value) -> Value {
    workload["spec"]["template"]["spec"]["containers"][0]["image"] = name.into();
    workload
}

fn insisting(mut workload: Value) -> Value {
    workload["metadata"]["annotations"] = json!({"drover.io/replicas-owner": "drover"});
    workload
}

/// The number that another field manager has chosen stays through corrections and updates; an annotation overrides it.
async fn another_manager_keeps_its_number(place: Place) {
    let stack = &place.stack;
    stack.bundle("b1", vec![deployment("web", 1, "10m")]).await;
    stack.bundle("b2", vec![image("example.com/web:2", deployment("web", 2, "10m"))]).await;
    stack.bundle("b3", vec![insisting(deployment("web", 2, "10m"))]).await;
    let first = place.binding("b1", 1, None);
    stack.desire(&first).await;
    assert_eq!(stack.reaches(&first, Phase::Ready).await.scaled, []);
    assert_eq!(place.replicas().await, Some(1));

    place.scale("kube-controller-manager", 3).await;
    place.says(&first, "kube-controller-manager", 3).await;
    assert_eq!(place.replicas().await, Some(3));

    let second = place.binding("b2", 2, Some(first.id));
    stack.desire(&second).await;
    stack.reaches(&second, Phase::Ready).await;
    let updated = place.workloads().get("web").await.unwrap().spec.unwrap();
    assert_eq!(updated.template.spec.unwrap().containers[0].image.as_deref(), Some("example.com/web:2"));
    assert_eq!(updated.replicas, Some(3), "an update does not write the number of its manifest over the other one");

    let third = place.binding("b3", 3, Some(first.id));
    stack.desire(&third).await;
    assert_eq!(stack.reaches(&third, Phase::Ready).await.scaled, []);
    assert_eq!(place.replicas().await, Some(2), "the annotation makes Drover set the number");
    place.scale("kube-controller-manager", 3).await;
    eventually(PATIENCE, async || (place.replicas().await == Some(2)).then_some(())).await;

    let gone = absent(&third);
    stack.desire(&gone).await;
    stack.reaches(&gone, Phase::Gone).await;
}

#[tokio::test]
async fn number_of_another_field_manager_stays() {
    another_manager_keeps_its_number(Place::simulated().await).await;
}

#[tokio::test]
async fn number_of_another_field_manager_stays_on_a_real_api_server() {
    let Some(stack) = real() else { return };
    let place = Place { stack: stack.await, namespace: format!("drover-scaled-{}", std::process::id()) };
    let namespaces: Api<Namespace> = Api::all(place.stack.client());
    let namespace = place.namespace.clone();
    another_manager_keeps_its_number(place).await;
    // Deleted by Drover unless the server has put objects of its own there.
    let _ = namespaces.delete(&namespace, &DeleteParams::default()).await;
}

#[tokio::test]
async fn moved_copy_starts_with_the_number_that_runs() {
    const OTHER: &str = "onprem+other";
    let stack = Stack::start().await;
    stack.add_member(OTHER);
    let place = Place { stack, namespace: "default".to_owned() };
    let stack = &place.stack;
    // The manifest leaves the number to the HPA, as Kubernetes recommends.
    let mut workload = deployment("web", 1, "10m");
    workload["spec"].as_object_mut().unwrap().remove("replicas");
    stack.bundle("b1", vec![workload.clone()]).await;
    stack.bundle("b2", vec![image("example.com/web:2", workload)]).await;
    let here = place.binding("b1", 1, None);
    stack.desire(&here).await;
    stack.reaches(&here, Phase::Ready).await;
    place.scale("kube-controller-manager", 7).await;
    place.says(&here, "kube-controller-manager", 7).await;

    let there = DesiredBinding { member: drover_scheduling::MemberKey(OTHER.into()), ..place.binding("b1", 1, None) };
    stack.desire(&there).await;
    stack.reaches(&there, Phase::Ready).await;
    let moved: Api<Deployment> = Api::namespaced(stack.sim.client(OTHER), "default");
    let replicas = async || moved.get("web").await.unwrap().spec.unwrap().replicas;
    assert_eq!(replicas().await, Some(7));
    stack.desire(&absent(&here)).await;
    stack.reaches(&absent(&here), Phase::Gone).await;

    // The number stays when the old copy is gone and the new one is applied again.
    let updated = DesiredBinding { digest: "b2".into(), fence: 2, ..there.clone() };
    stack.desire(&updated).await;
    stack.reaches(&updated, Phase::Ready).await;
    assert_eq!(replicas().await, Some(7));
}
