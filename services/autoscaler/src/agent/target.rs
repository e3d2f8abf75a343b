//! The workload that is scaled, through its `scale` subresource.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use drover_autoscaling::TargetRef;
use k8s_openapi::api::autoscaling::v1::{Scale, ScaleSpec};
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, Selector};
use kube::{Api, Client};

use super::{failpoint, selector};

/// Time limit of a call to the API server.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Why something could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The API server refused the call, or could not be reached.
    #[error("{0}")]
    Api(#[from] kube::Error),
    /// There was no answer in time.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Late,
    /// The answer cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// This agent may no longer act.
    #[error("this agent may no longer act: another one may have taken over")]
    NotLeading,
}

/// Waits for an answer for at most [`PATIENCE`].
///
/// # Errors
/// If the call fails or takes too long.
pub async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    Ok(tokio::time::timeout(PATIENCE, call).await.map_err(|_| CallError::Late)??)
}

/// A workload as it was read.
#[derive(Clone, Debug)]
pub struct Target {
    api: Api<DynamicObject>,
    name: String,
    scale: Scale,
    /// Selects its pods.
    pub selector: Selector,
    /// The selector as text.
    pub selector_text: String,
}

impl Target {
    /// Replicas that are set.
    pub fn replicas(&self) -> i32 {
        self.scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
    }

    /// Replicas that exist.
    pub fn status_replicas(&self) -> i32 {
        self.scale.status.as_ref().map_or(0, |status| status.replicas)
    }

    /// Sets `replicas`, unless somebody else has changed them since they were read; `left` is how long this agent may still act.
    /// If something else about the workload changed (for example, a pod became ready), it is read again and the write is repeated.
    ///
    /// # Errors
    /// If somebody else scaled it, the API server refuses, or this agent may no longer act.
    pub async fn set_replicas(&self, replicas: i32, left: impl Fn() -> Option<Duration>) -> Result<(), CallError> {
        let mut scale = self.scale.clone();
        for attempt in 0.. {
            let asked = Scale { spec: Some(ScaleSpec { replicas: Some(replicas) }), ..scale };
            failpoint::reached("before-write");
            let patience = left().ok_or(CallError::NotLeading)?.min(PATIENCE);
            match tokio::time::timeout(patience, self.api.replace_scale(&self.name, &PostParams::default(), &asked)).await {
                Ok(Ok(_)) => {
                    failpoint::reached("after-write");
                    return Ok(());
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 409 && attempt < 3 => {}
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Err(CallError::Late),
            }
            scale = within(self.api.get_scale(&self.name)).await?;
            let now = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
            if now != self.replicas() {
                return Err(CallError::Unusable(format!("somebody else set {now} replicas meanwhile")));
            }
        }
        Err(CallError::Late)
    }
}

/// Reads workloads of any kind that has a `scale` subresource.
#[derive(Debug, Default)]
pub struct ScalableKinds(Mutex<HashMap<GroupVersionKind, ApiResource>>);

impl ScalableKinds {
    /// Reads a workload.
    ///
    /// # Errors
    /// If there is no such kind or workload, it cannot be scaled, or the API server does not answer.
    pub async fn read(&self, client: &Client, namespace: &str, target: &TargetRef) -> Result<Target, CallError> {
        let resource = self.resource(client, target).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let scale = within(api.get_scale(&target.name)).await?;
        let text = scale.status.as_ref().and_then(|status| status.selector.clone()).unwrap_or_default();
        let selector = selector::parse(&text).ok_or_else(|| {
            CallError::Unusable(format!("the selector of {} {} is `{text}`: it does not select pods of its own", target.kind, target.name))
        })?;
        Ok(Target { api, name: target.name.clone(), scale, selector, selector_text: text })
    }

    async fn resource(&self, client: &Client, target: &TargetRef) -> Result<ApiResource, CallError> {
        let (group, version) = target.api_version.rsplit_once('/').unwrap_or(("", &target.api_version));
        let kind = GroupVersionKind::gvk(group, version, &target.kind);
        if let Some(known) = self.known().get(&kind) {
            return Ok(known.clone());
        }
        let (resource, _) = within(kube::discovery::pinned_kind(client, &kind)).await?;
        self.known().insert(kind, resource.clone());
        Ok(resource)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<GroupVersionKind, ApiResource>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
