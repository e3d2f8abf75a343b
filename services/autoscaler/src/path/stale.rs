//! Addresses that lead past the path of an app, and nobody else takes away.
//!
//! Kubernetes leaves what it has noted for a Service alone when the selector goes: clients would be sent to these pods for ever, also when they
//! are gone. And it leaves the agent's slice alone when the Service gets its selector back and is not public any more.

use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use tokio::time::{Duration, Instant};

use super::slices::{self, MANAGED_BY, SERVICE_NAME};

/// They are deleted once more after this time: Kubernetes may have been writing them while the selector went.
const ONCE_MORE: Duration = Duration::from_secs(10);
const CONTROLLERS: [&str; 2] = ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

/// How far the addresses of a Service are deleted.
#[derive(Clone, Debug, Default)]
pub struct Forgetting {
    /// The version of the Service, and when they were deleted the first time since then.
    since: Option<(String, Instant)>,
    /// They were deleted the second time, too.
    done: bool,
    failing: bool,
}

impl Forgetting {
    /// What is to be done now with this Service, if anything: the same value, as it is afterwards.
    pub fn next(&self, service: &Service, now: Instant) -> Option<Self> {
        let selects = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| !selector.is_empty());
        let version = service.resource_version().filter(|_| !selects)?;
        match &self.since {
            Some((same, at)) if *same == version => (!self.done && now >= *at + ONCE_MORE).then(|| Self { done: true, ..self.clone() }),
            _ => Some(Self { since: Some((version, now)), done: false, ..self.clone() }),
        }
    }

    /// The value after an attempt that failed: it is repeated later, and said once.
    pub fn failed(self, service: &Service, now: Instant, error: &kube::Error) -> Self {
        if !self.failing {
            tracing::warn!(service = service.name_any(), %error, "its old addresses cannot be deleted; some requests may go past the path of its app");
        }
        Self { since: self.since.map(|(version, _)| (version, now)), done: false, failing: true }
    }
}

/// Deletes what Kubernetes has noted as the addresses of a Service without a selector.
pub async fn forget_addresses(client: &Client, namespace: &str, service: &str) -> Result<(), kube::Error> {
    gone(Api::<Endpoints>::namespaced(client.clone(), namespace).delete(service, &DeleteParams::default()).await)?;
    let written = Api::<EndpointSlice>::namespaced(client.clone(), namespace);
    for by in CONTROLLERS {
        let labels = format!("{SERVICE_NAME}={service},{MANAGED_BY}={by}");
        written.delete_collection(&DeleteParams::default(), &ListParams::default().labels(&labels)).await?;
    }
    Ok(())
}

/// Deletes the slice of a Service, unless the Service is public after all: what is known of it may be late.
pub async fn forget_slice(client: &Client, namespace: &str, slice: &EndpointSlice) -> Result<(), kube::Error> {
    let Some(service) = slice.labels().get(SERVICE_NAME) else { return Ok(()) };
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let found = services.list(&ListParams::default().fields(&format!("metadata.name={service}"))).await?.items;
    // With the Service, Kubernetes deletes the slice too.
    if found.first().is_none_or(slices::is_public) {
        return Ok(());
    }
    gone(Api::<EndpointSlice>::namespaced(client.clone(), namespace).delete(&slice.name_any(), &DeleteParams::default()).await)?;
    tracing::info!(namespace, service, "it leads to the pods by itself again");
    Ok(())
}

/// Deleting what is not there is no failure.
fn gone<T>(deleted: kube::Result<T>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_deleted_twice_for_each_version_of_a_service_without_a_selector() {
        let service = |version: &str, selector: serde_json::Value| -> Service {
            serde_json::from_value(json!({"metadata": {"resourceVersion": version}, "spec": {"selector": selector}})).unwrap()
        };
        let (none, now) = (service("1", json!(null)), Instant::now());
        assert!(Forgetting::default().next(&service("1", json!({"app": "a"})), now).is_none());
        let once = Forgetting::default().next(&none, now).unwrap();
        assert!(once.next(&none, now).is_none());
        let twice = once.next(&none, now + ONCE_MORE).unwrap();
        assert!(twice.next(&none, now + 10 * ONCE_MORE).is_none());
        assert!(twice.next(&service("2", json!({})), now).is_some());
    }
}
