//! Nothing leads past the path of an app whose Service loses its selector, as when Drover applies it with scale to zero, nor to its old path when
//! the Service gets the selector back. Kubernetes itself leaves both.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::{Agent, PATIENCE, SHORT_LEASE, TestNamespace};
use drover_autoscaler::policy::ScalingPolicy;
use drover_testkit::eventually;

const OF_AGENT: &str = "autoscaler.drover.io";
const OF_KUBERNETES: &str = "endpointslice-controller.k8s.io";

/// Applies a Service as Drover does.
async fn applied(place: &TestNamespace, name: &str, path: Option<&str>, spec: Value) {
    let labels = path.map_or(json!({}), |path| json!({"drover.io/path": path, "drover.io/policy": "cart"}));
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": spec});
    place.api::<Service>().patch(name, &PatchParams::apply("drover").force(), &Patch::Apply(&service)).await.unwrap();
}

/// Who has written where requests to the app go, and how many addresses there are.
async fn ways(place: &TestNamespace) -> (BTreeSet<String>, usize) {
    let of_app = ListParams::default().labels("kubernetes.io/service-name=cart");
    let slices = place.api::<EndpointSlice>().list(&of_app).await.unwrap().items;
    let by = slices.iter().map(|slice| slice.labels()["endpointslice.kubernetes.io/managed-by"].clone()).collect();
    (by, slices.iter().map(|slice| slice.endpoints.len()).sum())
}

fn only(by: &str) -> (BTreeSet<String>, usize) {
    (BTreeSet::from([by.to_owned()]), 1)
}

/// The Service of an app as it was applied before, and after that with a path of its own.
fn plain() -> Value {
    json!({"selector": {"app": "cart"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]})
}

async fn public(place: &TestNamespace) {
    applied(place, "cart", Some("public"), json!({"ports": [{"name": "http", "port": 80}]})).await;
    let ports = json!([{"name": "queue", "port": 8012}, {"name": "queue-admin", "port": 8022}]);
    applied(place, "cart-pods", Some("pods"), json!({"clusterIP": "None", "selector": {"app": "cart"}, "ports": ports})).await;
}

/// No policy is left, and the Service leads to the pods by itself again.
async fn not_public(place: &TestNamespace) {
    place.api::<ScalingPolicy>().delete("cart", &DeleteParams::default()).await.unwrap();
    applied(place, "cart", None, plain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slice_that_an_earlier_agent_has_left_goes_although_no_policy_is_left() {
    let Some(place) = TestNamespace::new("left-slice") else { return };
    let place = place.await;
    let least = place.least_rights().await;
    let agent = Agent::start(&place, "agent", &least, &[SHORT_LEASE]).await;
    place.workload("cart", 1).await;
    public(&place).await;
    place.policy("cart", "kpa", "apply", json!({})).await;
    let of_agent = only(OF_AGENT);
    eventually(PATIENCE, async || (ways(&place).await == of_agent).then_some(())).await;
    drop(agent);
    not_public(&place).await;
    eventually(PATIENCE, async || ways(&place).await.0.contains(OF_KUBERNETES).then_some(())).await;
    assert!(ways(&place).await.0.contains(OF_AGENT), "nobody takes it away");

    let agent = Agent::start(&place, "later", &least, &[SHORT_LEASE]).await;
    eventually(PATIENCE, async || (ways(&place).await == only(OF_KUBERNETES)).then_some(())).await;
    drop(agent);
    place.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_has_one_path_when_it_loses_its_selector_and_when_it_gets_it_back() {
    let Some(place) = TestNamespace::new("stale") else { return };
    let place = place.await;
    let least = place.least_rights().await;
    let agent = Agent::start(&place, "agent", &least, &[]).await;
    place.workload("cart", 1).await;
    applied(&place, "cart", None, plain()).await;
    let of_kubernetes = only(OF_KUBERNETES);
    eventually(PATIENCE, async || (ways(&place).await == of_kubernetes).then_some(())).await;

    public(&place).await;
    assert!(ways(&place).await.0.is_superset(&of_kubernetes.0), "Kubernetes leaves them");
    place.policy("cart", "kpa", "apply", json!({})).await;
    let of_agent = only(OF_AGENT);
    eventually(PATIENCE, async || (ways(&place).await == of_agent).then_some(())).await;
    eventually(PATIENCE, async || place.api::<Endpoints>().get_opt("cart").await.unwrap().is_none().then_some(())).await;

    not_public(&place).await;
    eventually(PATIENCE, async || (ways(&place).await == of_kubernetes).then_some(())).await;
    assert!(!agent.log().contains("forbidden"), "its rights suffice: {}", agent.log());
    drop(agent);
    place.done().await;
}
