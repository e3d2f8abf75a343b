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

/// A call that takes longer is given up.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Why something could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The API server says no, or nothing.
    #[error("{0}")]
    Api(#[from] kube::Error),
    /// No answer in time.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Late,
    /// What was answered cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// This agent may no longer act.
    #[error("another agent may act by now")]
    NotLeading,
}

/// Waits for an answer, but not forever.
///
/// # Errors
/// The call's, or that it took too long.
pub async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
    Ok(tokio::time::timeout(PATIENCE, call).await.map_err(|_| Trouble::Late)??)
}

/// A workload as it was read.
#[derive(Clone, Debug)]
pub struct Target {
    api: Api<DynamicObject>,
    name: String,
    scale: Scale,
    /// Its pods.
    pub selector: Selector,
    /// The same as text.
    pub selector_text: String,
}

impl Target {
    /// Replicas asked for.
    pub fn replicas(&self) -> i32 {
        self.scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
    }

    /// Replicas that exist.
    pub fn status_replicas(&self) -> i32 {
        self.scale.status.as_ref().map_or(0, |status| status.replicas)
    }

    /// Asks for `replicas`, if nobody has touched the workload since it was read; `left` is how long this agent may still act.
    /// Where only something else about it changed (a pod became ready), it is read again and asked once more.
    ///
    /// # Errors
    /// Somebody else scaled it, or the API server refuses.
    pub async fn ask_for(&self, replicas: i32, left: impl Fn() -> Option<Duration>) -> Result<(), Trouble> {
        let mut scale = self.scale.clone();
        for attempt in 0.. {
            let asked = Scale { spec: Some(ScaleSpec { replicas: Some(replicas) }), ..scale };
            failpoint::reached("before-write");
            let patience = left().ok_or(Trouble::NotLeading)?.min(PATIENCE);
            match tokio::time::timeout(patience, self.api.replace_scale(&self.name, &PostParams::default(), &asked)).await {
                Ok(Ok(_)) => {
                    failpoint::reached("after-write");
                    return Ok(());
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 409 && attempt < 3 => {}
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Err(Trouble::Late),
            }
            scale = within(self.api.get_scale(&self.name)).await?;
            let now = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
            if now != self.replicas() {
                return Err(Trouble::Unusable(format!("somebody else asked for {now} replicas meanwhile")));
            }
        }
        Err(Trouble::Late)
    }
}

/// Finds workloads of any kind that has a `scale` subresource.
#[derive(Debug, Default)]
pub struct Kinds(Mutex<HashMap<GroupVersionKind, ApiResource>>);

impl Kinds {
    /// Reads a workload.
    ///
    /// # Errors
    /// There is no such kind or workload, it cannot be scaled, or nobody answers.
    pub async fn read(&self, client: &Client, namespace: &str, target: &TargetRef) -> Result<Target, Trouble> {
        let resource = self.resource(client, target).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let scale = within(api.get_scale(&target.name)).await?;
        let text = scale.status.as_ref().and_then(|status| status.selector.clone()).unwrap_or_default();
        let selector = selector::parse(&text).ok_or_else(|| {
            Trouble::Unusable(format!("the selector of {} {} says `{text}`: it selects no pods of its own", target.kind, target.name))
        })?;
        Ok(Target { api, name: target.name.clone(), scale, selector, selector_text: text })
    }

    async fn resource(&self, client: &Client, target: &TargetRef) -> Result<ApiResource, Trouble> {
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
