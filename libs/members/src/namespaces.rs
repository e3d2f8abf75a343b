//! Namespaces that no bundle brings: made where a binding needs one, taken away when the last binding has left it empty.
//!
//! Invariant: only a namespace that this installation made itself is ever deleted, and only while nothing is in it but what
//! Kubernetes puts into every namespace.

use std::time::{Duration, Instant};

use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::core::ApiResource;
use serde_json::json;
use uuid::Uuid;

use crate::labels;
use crate::member::{Member, MemberError, Trouble, lock, within};
use crate::objects::{Object, ObjectId};

/// A namespace that was there is not asked about again for so long, unless an object is refused in it.
const FRESH: Duration = Duration::from_secs(5);

fn address(name: &str) -> ObjectId {
    ObjectId { api_version: "v1".into(), kind: "Namespace".into(), namespace: String::new(), name: name.into() }
}

/// What is in every namespace, or speaks only of what was.
fn counts_as_nothing(group: &str, plural: &str, name: &str) -> bool {
    match (group, plural) {
        ("" | "events.k8s.io", "events") | ("metrics.k8s.io", _) => true,
        ("", "configmaps") => name == "kube-root-ca.crt",
        ("", "serviceaccounts") => name == "default",
        _ => false,
    }
}

impl Member {
    /// Whether a namespace was there a moment ago.
    pub(crate) fn namespace_was_there(&self, name: &str) -> bool {
        lock(&self.namespaces).get(name).is_some_and(|at| at.elapsed() < FRESH)
    }

    /// Whether a namespace that was there a moment ago is not there any more.
    pub(crate) async fn namespace_has_gone(&self, name: &str) -> Result<bool, MemberError> {
        Ok(self.namespace_was_there(name) && !self.namespace_is_there(name).await?)
    }

    /// Whether a namespace exists and is not going.
    pub async fn namespace_is_there(&self, name: &str) -> Result<bool, MemberError> {
        let there = self.metadata(&address(name)).await?.is_some_and(|found| found.deletion_timestamp.is_none());
        match there {
            true => lock(&self.namespaces).insert(name.to_owned(), Instant::now()),
            false => lock(&self.namespaces).remove(name),
        };
        Ok(there)
    }

    /// Makes a namespace that is missing, marked as this installation's; one that exists, or did a moment ago, is left as it
    /// is. One that is still going is a [`MemberError::Conflict`]: it can be made when it has gone.
    pub async fn ensure_namespace(&self, name: &str, hub: Uuid) -> Result<(), MemberError> {
        if self.namespace_was_there(name) {
            return Ok(());
        }
        match self.metadata(&address(name)).await? {
            Some(found) if found.deletion_timestamp.is_some() => Err(MemberError::Conflict(Box::new(address(name)))),
            Some(_) => Ok(()),
            None => {
                let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {labels::HUB: hub}}});
                self.patch(&Object { id: address(name).into(), digest: "".into(), value }, false).await.map(|_| ())
            }
        }
    }

    /// Deletes a namespace that this installation made and that is empty; any other is left alone.
    pub async fn remove_empty_namespace(&self, name: &str, hub: Uuid) -> Result<(), MemberError> {
        let Some(found) = self.metadata(&address(name)).await? else { return Ok(()) };
        let has = |label: &str| found.labels.as_ref().and_then(|labels| labels.get(label));
        // With a binding's label it is an object of that binding, and goes with it.
        let ours = has(labels::HUB).is_some_and(|value| *value == hub.to_string()) && has(labels::BINDING).is_none();
        if !ours || found.deletion_timestamp.is_some() || !self.is_empty(name).await? {
            return Ok(());
        }
        lock(&self.namespaces).remove(name);
        let exactly_this = Preconditions { uid: found.uid, resource_version: found.resource_version };
        let api = self.api(&address(name)).await?;
        match within(api.delete(name, &DeleteParams::background().preconditions(exactly_this))).await {
            Ok(_) | Err(Trouble::Api(404 | 409, _)) => Ok(()),
            Err(trouble) => Err(trouble.of_object(&address(name))),
        }
    }

    async fn is_empty(&self, name: &str) -> Result<bool, MemberError> {
        let groups = within(self.client().list_api_groups()).await.map_err(Trouble::of_member)?;
        let preferred = groups.groups.into_iter().filter_map(|group| {
            let version = group.preferred_version.or_else(|| group.versions.into_iter().next())?;
            Some(version.group_version)
        });
        for api_version in ["v1".to_owned()].into_iter().chain(preferred) {
            let listed = match api_version.contains('/') {
                true => within(self.client().list_api_group_resources(&api_version)).await,
                false => within(self.client().list_core_api_resources(&api_version)).await,
            };
            let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
            // What the member cannot or will not list (a broken aggregated API, a kind that is not ours to see) may hold something.
            let resources = match listed {
                Ok(listed) => listed.resources,
                Err(Trouble::Api(..)) => return Ok(false),
                Err(trouble) => return Err(trouble.of_member()),
            };
            for resource in resources {
                let listable = resource.namespaced && !resource.name.contains('/') && resource.verbs.iter().any(|verb| verb == "list");
                if !listable || counts_as_nothing(group, &resource.name, "") {
                    continue;
                }
                let (group, version, api_version) = (group.to_owned(), version.to_owned(), api_version.clone());
                let kind = ApiResource { group, version, api_version, kind: resource.kind, plural: resource.name };
                let api: Api<DynamicObject> = Api::namespaced_with(self.client(), name, &kind);
                let found = match within(api.list_metadata(&ListParams::default().limit(10))).await {
                    Ok(found) => found,
                    Err(Trouble::Api(..)) => return Ok(false),
                    Err(trouble) => return Err(trouble.of_member()),
                };
                let nothing = |object: &str| counts_as_nothing(&kind.group, &kind.plural, object);
                if !found.items.iter().all(|object| nothing(object.metadata.name.as_deref().unwrap_or_default())) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
