//! `HTTPRoute`s of the Gateway API in a member, as the operator of a gateway makes them.

use std::time::Duration;

use drover_testkit::eventually;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::{Backend, Member, definitions};

const PATIENCE: Duration = Duration::from_secs(120);
/// The name of the `HTTPRoute`.
pub const NAME: &str = "shop";

fn http_routes(member: &Member) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "HTTPRoute"));
    Api::namespaced_with(member.client.clone(), "default", &resource)
}

/// Makes the kind known.
pub async fn define(member: &Member, backend: Backend) {
    definitions::define(member, backend, "gateway-api", &[["gateway.networking.k8s.io", "v1", "HTTPRoute"]]).await;
}

/// Gives the `HTTPRoute` these backends.
pub async fn set_backends(member: &Member, names: &[&str]) {
    let backends: Vec<Value> = names.iter().map(|name| json!({"name": name, "port": 80})).collect();
    let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": NAME},
        "spec": {"rules": [{"backendRefs": backends}]}});
    let params = PatchParams::apply("user").force();
    eventually(PATIENCE, async || http_routes(member).patch(NAME, &params, &Patch::Apply(&route)).await.ok()).await;
}

/// The weights of the backends.
pub async fn weights(member: &Member) -> Vec<u64> {
    let route = http_routes(member).get(NAME).await.expect("the member answers");
    let backends = route.data["spec"]["rules"][0]["backendRefs"].as_array().cloned().unwrap_or_default();
    backends.iter().map(|backend| backend["weight"].as_u64().unwrap_or(1)).collect()
}

/// Waits until the backends have these weights.
pub async fn weigh(member: &Member, wanted: &[u64]) {
    eventually(PATIENCE, async || (weights(member).await == wanted).then_some(())).await;
}
