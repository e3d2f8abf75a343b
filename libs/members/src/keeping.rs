//! What would be deleted together with a CustomResourceDefinition or a Namespace, and letting go of one that others need.
//!
//! Kubernetes deletes every object of a kind with its definition, and every object in a namespace with the namespace, whoever made them.
//! Who needs which of them is known by the caller.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::error::{MemberError, RequestError, within};
use crate::labels::{self, FIELD_MANAGER};
use crate::member::Member;
use crate::object_id::ObjectId;

/// How many objects of one kind are listed at once. More are listed only while none that counts was found.
const PAGE: u32 = 500;

/// An object that would be deleted with another one.
#[derive(Clone, Debug)]
pub struct TakenAlong {
    pub id: ObjectId,
    pub metadata: ObjectMeta,
}

/// What would be deleted with an object.
#[derive(Clone, Debug)]
pub enum Contents {
    /// Objects that are not being deleted yet, of each kind those of the first page of 500 that has any.
    Listed(Vec<TakenAlong>),
    /// They cannot be listed, and why.
    Unknown(String),
}

impl Member {
    /// The objects whose kind a CustomResourceDefinition defines.
    ///
    /// # Errors
    /// When the member does not answer.
    pub async fn objects_of_definition(&self, definition: &ObjectId) -> Result<Contents, MemberError> {
        let found = match within(self.api(definition).await?.get_opt(&definition.name)).await {
            Ok(found) => found.map(|found| found.data).unwrap_or_default(),
            Err(error) => return unlistable(error, &definition.to_string()),
        };
        let Some(kind) = stored_kind(&found["spec"]) else {
            // Objects may be stored in a version that is no longer served.
            return Ok(match found.is_null() {
                true => Contents::Listed(Vec::new()),
                false => Contents::Unknown("it serves no version".to_owned()),
            });
        };
        match self.page(None, &kind, "", |_| true).await {
            Ok(found) => Ok(Contents::Listed(found)),
            // Its names are taken by another definition, or it was made a moment ago.
            Err(RequestError::Api(404, _)) => Ok(Contents::Listed(Vec::new())),
            Err(error) => unlistable(error, &kind.kind),
        }
    }

    /// The objects in a namespace, without those of one binding and those that every namespace has.
    ///
    /// # Errors
    /// When the member does not answer.
    pub async fn objects_in_namespace(&self, name: &str, except: Option<Uuid>) -> Result<Contents, MemberError> {
        let selector = except.map_or_else(String::new, |binding| format!("{}!={binding}", labels::BINDING));
        let groups = within(self.client().list_api_groups()).await.map_err(RequestError::of_member)?;
        let preferred = groups.groups.into_iter().filter(|group| !only_measures(&group.name)).filter_map(|group| {
            let version = group.preferred_version.or_else(|| group.versions.into_iter().next())?;
            Some(version.group_version)
        });
        let mut all = Vec::new();
        for api_version in ["v1".to_owned()].into_iter().chain(preferred) {
            let listed = match api_version.contains('/') {
                true => within(self.client().list_api_group_resources(&api_version)).await,
                false => within(self.client().list_core_api_resources(&api_version)).await,
            };
            let resources = match listed {
                Ok(listed) => listed.resources,
                // The last kind of the group vanished since the discovery.
                Err(RequestError::Api(404, _)) => continue,
                // An aggregated API that does not answer may have objects in the namespace. One that is busy is asked again.
                Err(RequestError::Api(code, message)) if code != 429 => {
                    return Ok(Contents::Unknown(format!("{api_version} cannot be listed: {message}")));
                }
                Err(error) => return Err(error.of_member()),
            };
            let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
            for resource in resources {
                let listable = resource.namespaced && !resource.name.contains('/') && resource.verbs.iter().any(|verb| verb == "list");
                if !listable || is_incidental(group, &resource.name, "") {
                    continue;
                }
                let (group, version, api_version) = (group.to_owned(), version.to_owned(), api_version.clone());
                let kind = ApiResource { group, version, api_version, kind: resource.kind, plural: resource.name };
                match self.page(Some(name), &kind, &selector, |name| !is_incidental(&kind.group, &kind.plural, name)).await {
                    Ok(found) => all.extend(found),
                    // The kind vanished since the discovery.
                    Err(RequestError::Api(404, _)) => {}
                    // With 429 it came a moment ago, and the API server is not ready for it yet.
                    Err(RequestError::Api(code, message)) if code != 429 => {
                        return Ok(Contents::Unknown(format!("{} cannot be listed: {message}", kind.kind)));
                    }
                    Err(error) => return Err(error.of_member()),
                }
            }
        }
        Ok(Contents::Listed(all))
    }

    /// The objects of the first page that has any which are not being deleted and whose names count.
    async fn page(
        &self,
        namespace: Option<&str>,
        kind: &ApiResource,
        selector: &str,
        counts: impl Fn(&str) -> bool,
    ) -> Result<Vec<TakenAlong>, RequestError> {
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, kind),
            None => Api::all_with(self.client(), kind),
        };
        let mut page =
            ListParams { label_selector: Some(selector.to_owned()).filter(|s| !s.is_empty()), ..ListParams::default().limit(PAGE) };
        loop {
            let list = within(api.list_metadata(&page)).await?;
            let found = list.items.into_iter().map(|item| item.metadata);
            let there =
                found.filter(|metadata| metadata.deletion_timestamp.is_none() && counts(metadata.name.as_deref().unwrap_or_default()));
            let taken: Vec<_> = there
                .map(|metadata| TakenAlong {
                    id: ObjectId {
                        api_version: kind.api_version.clone(),
                        kind: kind.kind.clone(),
                        namespace: metadata.namespace.clone().unwrap_or_default(),
                        name: metadata.name.clone().unwrap_or_default(),
                    },
                    metadata,
                })
                .collect();
            let next = list.metadata.continue_.filter(|token| !token.is_empty());
            // A page without one says nothing of the objects behind it.
            if !taken.is_empty() || next.is_none() {
                return Ok(taken);
            }
            page.continue_token = next;
        }
    }

    /// Leaves an object of this binding where it is and takes Drover's labels and annotations from it; `uid` as in [`Self::delete`].
    /// With `remains_ours` the namespace stays this installation's, which deletes it when it is empty; without, nobody of Drover deletes
    /// it, and an app that contains the object may take it over. Returns false if it is not (or no longer) this binding's.
    ///
    /// # Errors
    /// [`MemberError::Conflict`] if the object is being deleted or was changed at the same time. Otherwise when the member refuses the
    /// change or does not answer.
    pub async fn release(
        &self,
        id: &ObjectId,
        uid: Option<&str>,
        binding: Uuid,
        hub: Uuid,
        remains_ours: bool,
    ) -> Result<bool, MemberError> {
        let Some(found) = self.own(id, uid, binding).await? else { return Ok(false) };
        if found.deletion_timestamp.is_some() {
            return Err(MemberError::Conflict(Box::new(id.clone())));
        }
        let mut marks: Map<String, Value> =
            [labels::DIG, labels::APP, labels::BINDING].map(|label| (label.to_owned(), Value::Null)).into_iter().collect();
        let mut notes = json!({labels::DIGEST: null});
        if !remains_ours {
            marks.insert(labels::HUB.to_owned(), Value::Null);
            notes[labels::RELEASED] = json!(hub);
        }
        let metadata = json!({"resourceVersion": found.resource_version, "labels": marks, "annotations": notes});
        self.merge(id, &json!({ "metadata": metadata })).await?;
        Ok(true)
    }

    /// Takes the note off that an object was released: an app has taken it over.
    pub(crate) async fn drop_release_note(&self, id: &ObjectId) -> Result<(), MemberError> {
        self.merge(id, &json!({"metadata": {"annotations": {labels::RELEASED: null}}})).await
    }

    /// Merges a patch into an object. With a resource version in it, the object must not have changed since.
    ///
    /// # Errors
    /// [`MemberError::Conflict`] if it has changed; otherwise when the member refuses the change or does not answer.
    pub async fn merge(&self, id: &ObjectId, patch: &Value) -> Result<(), MemberError> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let api = self.writing(id).await?;
        let answer = within(api.patch_metadata(&id.name, &params, &Patch::Merge(patch))).await;
        answer.map(drop).map_err(|error| self.refusal(error, id))
    }
}

/// What an error of the API server itself says of the objects of a kind. One that is busy is asked again later.
fn unlistable(error: RequestError, what: &str) -> Result<Contents, MemberError> {
    match error {
        RequestError::Transport(_) | RequestError::Api(401 | 429 | 502..=504, _) => Err(error.of_member()),
        RequestError::Api(_, message) => Ok(Contents::Unknown(format!("{what} cannot be listed: {message}"))),
    }
}

/// The kind of a definition, in the version in which its objects are stored if that is served: it needs no conversion webhook, which may
/// have been deleted by now. `None`: no version is served.
fn stored_kind(spec: &Value) -> Option<ApiResource> {
    let served = || spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true);
    let version = served().find(|version| version["storage"] == true).or_else(|| served().next())?["name"].as_str()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let group = text(&spec["group"])?;
    Some(ApiResource {
        api_version: format!("{group}/{version}"),
        version: version.to_owned(),
        group,
        kind: text(&spec["names"]["kind"])?,
        plural: text(&spec["names"]["plural"])?,
    })
}

/// Groups that store nothing: their objects are measurements.
fn only_measures(group: &str) -> bool {
    matches!(group, "metrics.k8s.io" | "custom.metrics.k8s.io" | "external.metrics.k8s.io")
}

/// Whether an object says nothing about the use of its namespace: every namespace has it, or it only reports what happened or who leads.
fn is_incidental(group: &str, plural: &str, name: &str) -> bool {
    match (group, plural) {
        ("" | "events.k8s.io", "events") | ("coordination.k8s.io", "leases") => true,
        ("", "configmaps") => name == "kube-root-ca.crt",
        ("", "serviceaccounts") => name == "default",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_listed_in_the_stored_version_if_that_is_served() {
        let version = |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage});
        let spec =
            |versions: &[Value]| json!({"group": "example.com", "names": {"kind": "Thing", "plural": "things"}, "versions": versions});
        let listed = |versions: &[Value]| stored_kind(&spec(versions)).map(|kind| kind.api_version);
        let both = [version("v1", true, false), version("v2", true, true)];
        assert_eq!(listed(&both).as_deref(), Some("example.com/v2"));
        let unserved = [version("v1", true, false), version("v2", false, true)];
        assert_eq!(listed(&unserved).as_deref(), Some("example.com/v1"));
        assert_eq!(listed(&[version("v1", false, true)]), None);
        assert!(stored_kind(&Value::Null).is_none());
    }
}
