//! `HTTPRoute`s of the Gateway API in a member, as the operator of a gateway makes them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_testkit::eventually;
use futures::StreamExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

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
    weights_of(&http_routes(member).get(NAME).await.expect("the member answers"))
}

fn weights_of(route: &DynamicObject) -> Vec<u64> {
    let backends = route.data["spec"]["rules"][0]["backendRefs"].as_array().cloned().unwrap_or_default();
    backends.iter().map(|backend| backend["weight"].as_u64().unwrap_or(1)).collect()
}

/// Waits until the backends have these weights.
pub async fn weigh(member: &Member, wanted: &[u64]) {
    eventually(PATIENCE, async || (weights(member).await == wanted).then_some(())).await;
}

/// All weights that the backends have had since it was made. Some last so shortly that a slow machine does not find them by asking.
pub struct Recorded {
    seen: Arc<Mutex<Vec<Vec<u64>>>>,
    task: JoinHandle<()>,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Records the weights of the backends from now on.
pub async fn record(member: &Member) -> Recorded {
    let seen: Arc<Mutex<Vec<Vec<u64>>>> = Arc::default();
    let (noted, stream) = (seen.clone(), watcher(http_routes(member), watcher::Config::default()).default_backoff());
    let task = tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            if let Ok(watcher::Event::Apply(route) | watcher::Event::InitApply(route)) = event {
                noted.lock().expect("no poison").push(weights_of(&route));
            }
        }
    });
    let recorded = Recorded { seen, task };
    eventually(PATIENCE, async || (!recorded.seen.lock().expect("no poison").is_empty()).then_some(())).await;
    recorded
}

impl Recorded {
    /// Waits until the backends have had these weights.
    pub async fn had(&self, wanted: &[u64]) {
        let had = async || self.seen.lock().expect("no poison").iter().any(|weights| weights == wanted).then_some(());
        eventually(PATIENCE, had).await;
    }
}
