//! What an autoscaler has learned goes with an app that moves: the ConfigMap with the Q-tables of a learning ScalingPolicy is copied from
//! the member where another copy of the app runs. So is what it remembers of any ScalingPolicy (windows and earlier decisions), from the
//! status there into an annotation here.
//!
//! It is written before the policy is applied, so that the agent there begins with it. Nothing that exists is written over, and a table
//! that cannot be copied does not hold up the move: the agent then starts with the policy's own table, as for a new app.

use std::time::Duration;

use drover_api::bindings::DesiredBinding;
use drover_members::bounds::is_policy;
use drover_members::{Applied, Member, Object};
use drover_scheduling::MemberKey;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::timeout;

use crate::app::App;
use crate::store;

/// Time limit of all requests together.
const PATIENCE: Duration = Duration::from_secs(5);
/// See services/autoscaler/src/agent/tables.rs.
const SUFFIX: &str = "-learned";

/// See services/autoscaler/src/policy.rs.
const CARRIED: &str = "drover.io/carried";
/// What is larger than this is not carried: annotations are limited to 256 KiB together.
const MOST: usize = 128 << 10;

/// Whether this object is a policy that learns.
pub fn is_learner(object: &Object) -> bool {
    is_policy(&object.value) && object.value["spec"]["policy"] == "qlearning"
}

/// A policy with what the agent remembers of it where another copy of the app runs, before it is applied here. `None`: nothing is known.
/// The digest stays that of the policy, so that the annotation is no difference to be corrected; the next change of the policy removes it.
pub async fn remembered(app: &App, desired: &DesiredBinding, policy: &Object) -> Option<Object> {
    let found = match timeout(PATIENCE, memory_of(app, desired, policy)).await {
        Ok(Ok(found)) => found?,
        Ok(Err(error)) => {
            tracing::warn!(cluster.id = %desired.member, policy = policy.id.name, error = format!("{error:#}"), "what the autoscaler remembers was not copied");
            return None;
        }
        Err(_) => {
            tracing::warn!(cluster.id = %desired.member, policy = policy.id.name, "what the autoscaler remembers was not copied in time");
            return None;
        }
    };
    let mut carrying = policy.clone();
    carrying.value["metadata"]["annotations"][CARRIED] = json!(found);
    Some(carrying)
}

/// What the agent remembers of a policy, as JSON, in the first other member where it says so.
async fn memory_of(app: &App, desired: &DesiredBinding, policy: &Object) -> anyhow::Result<Option<String>> {
    let version = policy.id.api_version.rsplit('/').next().unwrap_or_default();
    let gvk = GroupVersionKind::gvk(policy.id.group(), version, &policy.id.kind);
    let kind = ApiResource::from_gvk_with_plural(&gvk, "scalingpolicies");
    for other in store::bindings::other_members(&app.store, desired).await? {
        let Some(client) = app.clients.cached(&other, 0).await else { continue };
        let there: Api<DynamicObject> = Api::namespaced_with(client, &policy.id.namespace, &kind);
        let Some(found) = there.get_opt(&policy.id.name).await? else { continue };
        let memory = &found.data["status"]["remembered"];
        let text = memory.to_string();
        if memory.is_object() && text.len() <= MOST {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// Copies what a policy has learned elsewhere, before it is applied here. Returns whether it did.
pub async fn learned(app: &App, member: &Member, desired: &DesiredBinding, policy: &Object) -> bool {
    let name = format!("{}{SUFFIX}", policy.id.name);
    let copied = timeout(PATIENCE, copy(app, member, desired, &policy.id.namespace, &name)).await;
    match copied {
        Ok(Ok(Some(from))) => {
            tracing::info!(cluster.id = %desired.member, from = %from, config_map = name, "what the autoscaler learned was copied");
            true
        }
        Ok(Ok(None)) => false,
        Ok(Err(error)) => {
            tracing::warn!(cluster.id = %desired.member, config_map = name, error = format!("{error:#}"), "what the autoscaler learned was not copied");
            false
        }
        Err(_) => {
            tracing::warn!(cluster.id = %desired.member, config_map = name, "what the autoscaler learned was not copied in time");
            false
        }
    }
}

/// Lets the copied ConfigMap end with its policy, as the agent's own does.
pub async fn belongs_to(member: &Member, policy: &Object, applied: &Applied) {
    let owner = OwnerReference {
        api_version: policy.id.api_version.clone(),
        kind: policy.id.kind.clone(),
        name: policy.id.name.clone(),
        uid: applied.uid.to_string(),
        ..OwnerReference::default()
    };
    let maps: Api<ConfigMap> = Api::namespaced(member.writer(), &policy.id.namespace);
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
    let name = format!("{}{SUFFIX}", policy.id.name);
    match timeout(PATIENCE, maps.patch(&name, &PatchParams::default(), &patch)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(config_map = name, %error, "the copied table will outlive its policy"),
        Err(_) => tracing::warn!(config_map = name, "the copied table will outlive its policy: no answer in time"),
    }
}

/// Copies the ConfigMap from the first member that has it. Returns that member.
async fn copy(app: &App, member: &Member, desired: &DesiredBinding, namespace: &str, name: &str) -> anyhow::Result<Option<MemberKey>> {
    let here: Api<ConfigMap> = Api::namespaced(member.writer(), namespace);
    for other in store::bindings::other_members(&app.store, desired).await? {
        // Its worker has the client. A member without one is not registered.
        let Some(client) = app.clients.cached(&other, 0).await else { continue };
        let there: Api<ConfigMap> = Api::namespaced(client, namespace);
        let Some(found) = there.get_opt(name).await? else { continue };
        member.ensure_namespace(namespace, app.hub).await?;
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        return match here.create(&PostParams::default(), &ConfigMap { metadata, ..found }).await {
            Ok(_) => Ok(Some(other)),
            // What is there was learned here.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
    Ok(None)
}
