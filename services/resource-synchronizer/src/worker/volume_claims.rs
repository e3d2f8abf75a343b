//! Volume claims that StatefulSets made. Kubernetes keeps them when a StatefulSet is deleted, because they have its data, and so does Drover
//! unless their deletion was asked for. Those that stay are named: also where an app was only tried and went elsewhere.
//!
//! A claim belongs to a StatefulSet if its name is `<template>-<set>-<number>` and it has the labels of the set's selector, both of which the
//! controller of StatefulSets gives it. They are deleted when the pods are gone, so that no pod loses a volume that it uses.

use std::collections::BTreeMap;

use drover_members::DEADLINE;
use drover_members::{Member, MemberError};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use serde_json::Value;
use uuid::Uuid;

use super::Worker;
use crate::app::Error;
use crate::store;

/// What a StatefulSet calls its claims.
#[derive(Debug, PartialEq, Eq)]
struct Claims {
    /// Name of the StatefulSet.
    set: String,
    namespace: String,
    /// `<template>-<set>-`, one for each template.
    prefixes: Vec<String>,
    /// As a label selector.
    selector: String,
}

impl Claims {
    /// The claims of an object; `None` if it is no StatefulSet with templates of claims.
    fn of(object: &Value, namespace: &str) -> Option<Self> {
        if object["kind"] != "StatefulSet" || !object["apiVersion"].as_str()?.starts_with("apps/") {
            return None;
        }
        let set = object["metadata"]["name"].as_str()?;
        let templates = object["spec"]["volumeClaimTemplates"].as_array()?.iter();
        let prefixes: Vec<String> =
            templates.filter_map(|template| Some(format!("{}-{set}-", template["metadata"]["name"].as_str()?))).collect();
        let labels: BTreeMap<&String, &str> =
            object["spec"]["selector"]["matchLabels"].as_object()?.iter().filter_map(|(key, value)| Some((key, value.as_str()?))).collect();
        // Without labels every claim of the namespace would be one of them.
        if prefixes.is_empty() || labels.is_empty() {
            return None;
        }
        let selector = labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(namespace).to_owned();
        Some(Self { set: set.to_owned(), namespace, prefixes, selector })
    }

    fn has(&self, name: &str) -> bool {
        let numbered = |prefix: &String| {
            name.strip_prefix(prefix.as_str()).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
        };
        self.prefixes.iter().any(numbered)
    }
}

impl Worker {
    /// Deletes the claims of a binding that is absent, if that was asked for, and names the others. Returns whether none is left that is to
    /// go. One that the cluster does not let go is named in the result and holds up nothing.
    pub(super) async fn settle_volumes(&mut self, member: &Member, id: Uuid) -> Result<bool, Error> {
        let desired = self.bindings[&id].row.desired.clone();
        let bundle = store::bundles::get(&self.app.store, &desired.digest).await?.unwrap_or_default();
        let mut none_left = true;
        for claims in bundle.iter().filter_map(|object| Claims::of(object, &desired.namespace)) {
            let listed = match member.list_metadata("v1", "PersistentVolumeClaim", &claims.selector).await {
                // Who may not read claims can still remove the app.
                Err(MemberError::Unauthorized(_)) if !desired.delete_volumes => {
                    self.keep(
                        id,
                        format!("volume claims of StatefulSet/{}/{} stay with their data, if it made any", claims.namespace, claims.set),
                    )
                    .await?;
                    continue;
                }
                listed => listed?,
            };
            for claim in listed {
                let name = claim.name.clone().unwrap_or_default();
                if claim.namespace.as_deref() != Some(&claims.namespace) || !claims.has(&name) {
                    continue;
                }
                if !desired.delete_volumes {
                    if claim.deletion_timestamp.is_none() && !goes_with_set(&claim) {
                        let why = format!(
                            "PersistentVolumeClaim/{}/{name} stays with its data: StatefulSet {} made it",
                            claims.namespace, claims.set
                        );
                        self.keep(id, why).await?;
                    }
                    continue;
                }
                if claim.deletion_timestamp.is_some() {
                    none_left = false;
                    continue;
                }
                match delete(member, &claims.namespace, &name, claim.uid).await? {
                    Deleted::Asked => none_left = false,
                    Deleted::Refused(why) => {
                        self.keep(id, format!("PersistentVolumeClaim/{}/{name} stays: {why}", claims.namespace)).await?
                    }
                }
            }
        }
        Ok(none_left)
    }

    /// Names what stays in the member, once.
    async fn keep(&mut self, id: Uuid, why: String) -> Result<(), Error> {
        if !self.bindings[&id].row.kept.contains(&why) {
            store::hooks::note(&self.app.store, id, &why).await?;
            self.bound(id).row.kept.push(why);
        }
        Ok(())
    }
}

/// Whether Kubernetes deletes the claim with its StatefulSet, as the set's `persistentVolumeClaimRetentionPolicy` may say: then the claim has an
/// owner. A Kubernetes that does not know the policy gives it none.
fn goes_with_set(claim: &ObjectMeta) -> bool {
    claim.owner_references.iter().flatten().any(|owner| owner.kind == "StatefulSet")
}

enum Deleted {
    /// It is being deleted, or is gone.
    Asked,
    /// The cluster does not allow it.
    Refused(String),
}

async fn delete(member: &Member, namespace: &str, name: &str, uid: Option<String>) -> Result<Deleted, Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(member.writer(), namespace);
    let params = DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..DeleteParams::default() };
    let unreachable = |why: String| MemberError::Unreachable(format!("PersistentVolumeClaim/{namespace}/{name}: {why}"));
    match tokio::time::timeout(DEADLINE, api.delete(name, &params)).await {
        // Gone meanwhile, or another claim of that name: the next pass sees it.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 || status.code == 409 => Ok(Deleted::Asked),
        Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
            Ok(Deleted::Refused(status.message.clone()))
        }
        Ok(Err(error)) => Err(unreachable(error.to_string()).into()),
        Err(_) => Err(unreachable("no answer in time".to_owned()).into()),
        Ok(Ok(_)) => Ok(Deleted::Asked),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_of_a_set_are_known_by_name_and_labels() {
        let template = |name: &str| json!({"metadata": {"name": name}});
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
            "spec": {"selector": {"matchLabels": {"app": "db", "tier": "data"}}, "volumeClaimTemplates": [template("data"), template("wal")]}});
        let claims = Claims::of(&set, "shop").unwrap();
        assert_eq!((claims.namespace.as_str(), claims.selector.as_str()), ("shop", "app=db,tier=data"));
        let of_set = ["data-db-0", "wal-db-12"];
        assert!(of_set.iter().all(|name| claims.has(name)));
        assert!(!["data-db-", "data-db-x", "data-db-0-old", "data-db2-0", "db-0"].iter().any(|name| claims.has(name)));
        let mut bare = set;
        bare["spec"]["selector"]["matchLabels"] = json!({});
        assert_eq!(Claims::of(&bare, "shop"), None, "without labels nothing tells whose a claim is");
    }
    #[test]
    fn claim_goes_with_the_set_that_owns_it() {
        let owned_by = |kind: &str| {
            let owner = json!({"apiVersion": "v1", "kind": kind, "name": "db", "uid": "1"});
            goes_with_set(&serde_json::from_value(json!({"name": "data-db-0", "ownerReferences": [owner]})).unwrap())
        };
        assert!(owned_by("StatefulSet"));
        // With `whenScaled: Delete` a pod owns the claim, which goes when the set gets smaller, and stays when it is deleted.
        assert!(!owned_by("Pod") && !goes_with_set(&ObjectMeta::default()));
    }
}
