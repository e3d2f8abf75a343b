//! The verbs that Drover uses on the objects of one member.
//!
//! Each request has a deadline, so that a silent member costs its own worker a few seconds and nobody else anything.
//! Invariant: nothing is written to or deleted from an object unless its labels said, just before, that it is this app's;
//! deletion names uid and resource version, so that what came in between is never hit.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::Value;
use uuid::Uuid;

use crate::labels::{self, FIELD_MANAGER, Owner};
use crate::objects::{self, Object, ObjectId};

/// No answer for so long is no answer.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Why a request came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// No answer, or one that says to come back later.
    #[error("{0}")]
    Unreachable(String),
    /// The credential is not good (enough) any more.
    #[error("{0}")]
    Unauthorized(String),
    /// The member serves no such kind.
    #[error("the member serves no kind {kind} in {api_version}")]
    UnknownKind {
        /// API version asked for.
        api_version: String,
        /// Kind asked for.
        kind: String,
    },
    /// An object of that name is there and is not this app's.
    #[error("{id} exists in the member and is not this app's ({whose})")]
    Foreign {
        /// Which.
        id: Box<ObjectId>,
        /// Whose it seems to be.
        whose: String,
    },
    /// The object changed under our hands: look again.
    #[error("{0} changed meanwhile")]
    Conflict(Box<ObjectId>),
    /// The member looked at the object and refused it.
    #[error("{id}: {reason}")]
    Refused {
        /// Which.
        id: Box<ObjectId>,
        /// The member's words.
        reason: String,
    },
}

impl MemberError {
    /// Stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Unauthorized(_) => "unauthorized",
            Self::UnknownKind { .. } => "unknown_kind",
            Self::Foreign { .. } => "foreign_object",
            Self::Conflict(_) => "conflict",
            Self::Refused { .. } => "refused",
        }
    }
    /// Whether the member as a whole cannot be worked with, whatever the object.
    pub fn is_member(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Unauthorized(_))
    }
    /// The object's or kind's own fault: what a preflight reports.
    pub fn is_objects(&self) -> bool {
        matches!(self, Self::UnknownKind { .. } | Self::Foreign { .. } | Self::Refused { .. })
    }
}

/// How a kind is addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

/// What the member says of an object that was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Its uid, which who keeps it shares.
    pub uid: Arc<str>,
    /// Its generation; `None` for kinds that count none.
    pub generation: Option<i64>,
    /// Its resource version.
    pub resource_version: String,
}

/// One member, through one client.
pub struct Member {
    client: Client,
    mappings: Mutex<HashMap<(String, String), Mapping>>,
    /// Namespaces that were there, and when.
    pub(crate) namespaces: Mutex<HashMap<String, Instant>>,
}

impl Member {
    /// A member behind this client. Asks nothing yet.
    pub fn new(client: Client) -> Self {
        Self { client, mappings: Mutex::default(), namespaces: Mutex::default() }
    }

    /// Its client, for watches.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// How a kind is addressed. Asked once; a kind that is not known is asked for each time, as a CRD may just have come.
    pub async fn mapping(&self, api_version: &str, kind: &str) -> Result<Mapping, MemberError> {
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(mapping) = lock(&self.mappings).get(&key) {
            return Ok(mapping.clone());
        }
        let unknown = || MemberError::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() };
        let listed = match api_version.contains('/') {
            true => within(self.client.list_api_group_resources(api_version)).await,
            false => within(self.client.list_core_api_resources(api_version)).await,
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(Trouble::Api(404, _)) => return Err(unknown()),
            Err(trouble) => return Err(trouble.of_member()),
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut known = lock(&self.mappings);
        for resource in listed.resources.into_iter().filter(|resource| !resource.name.contains('/')) {
            let mapping = Mapping {
                namespaced: resource.namespaced,
                resource: ApiResource {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    api_version: api_version.to_owned(),
                    kind: resource.kind.clone(),
                    plural: resource.name,
                },
            };
            known.insert((api_version.to_owned(), resource.kind), mapping);
        }
        known.get(&key).cloned().ok_or_else(unknown)
    }

    /// Makes the checked objects of a bundle (see [`objects::flatten`]) this app's own, in the order to apply them. Kinds that
    /// a CRD of the same bundle brings are known from it.
    pub async fn prepare(&self, flat: &[Value], namespace: &str, owner: &Owner) -> Result<Vec<Object>, MemberError> {
        let mut prepared = Vec::with_capacity(flat.len());
        for value in flat {
            let text = |field: &str| value[field].as_str().unwrap_or_default();
            let (api_version, kind) = (text("apiVersion"), text("kind"));
            let namespaced = match self.mapping(api_version, kind).await {
                Ok(mapping) => mapping.namespaced,
                Err(error @ MemberError::UnknownKind { .. }) => objects::brought(flat, api_version, kind).ok_or(error)?,
                Err(error) => return Err(error),
            };
            prepared.push(Object::new(value.clone(), namespaced, namespace, owner));
        }
        prepared.sort();
        Ok(prepared)
    }

    /// Metadata of an object, if it exists.
    pub async fn metadata(&self, id: &ObjectId) -> Result<Option<ObjectMeta>, MemberError> {
        let api = self.api(id).await?;
        let found = within(api.get_metadata_opt(&id.name)).await.map_err(Trouble::of_member)?;
        Ok(found.map(|object| object.metadata))
    }

    /// Metadata of all objects of a kind with these labels, in any namespace, page by page.
    pub async fn list_metadata(&self, api_version: &str, kind: &str, selector: &str) -> Result<Vec<ObjectMeta>, MemberError> {
        let mapping = self.mapping(api_version, kind).await?;
        let api: Api<DynamicObject> = Api::all_with(self.client(), &mapping.resource);
        let mut found = Vec::new();
        let mut page = ListParams::default().labels(selector).limit(500);
        loop {
            let list = within(api.list_metadata(&page)).await.map_err(Trouble::of_member)?;
            found.extend(list.items.into_iter().map(|object| object.metadata));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// Applies an object, server-side and by force: what Drover desires of its own objects holds against other managers.
    /// `uid`: of the object that was applied before, which stays this app's even if somebody took its labels off.
    pub async fn apply(&self, object: &Object, owner: &Owner, uid: Option<&str>) -> Result<Applied, MemberError> {
        self.must_be_ours(&object.id, owner, uid).await?;
        self.patch(object, false).await
    }

    /// [`Self::apply`] for an object that was the last of a [`Self::preflight`]: that has just looked whose it is, or found that
    /// it cannot be there, for its namespace is not.
    pub async fn apply_looked_at(&self, object: &Object) -> Result<Applied, MemberError> {
        self.patch(object, false).await
    }

    /// Whether an object could be applied: asks the member's admission without writing, and refuses what is not ours.
    async fn dry_run(&self, object: &Object, owner: &Owner) -> Result<(), MemberError> {
        let (answer, ours) = tokio::join!(self.patch(object, true), self.must_be_ours(&object.id, owner, None));
        match answer {
            Err(error) if error.is_member() => Err(error),
            answer => ours.and(answer.map(drop)),
        }
    }

    /// Dry-runs a whole bundle and returns what stands against it, one error an object. Objects that need a CRD or a
    /// namespace which comes with the bundle (or is `namespace`, which [`Self::ensure_namespace`] makes) cannot be asked
    /// about before it is there; they are passed over. `Err` only where the member cannot be worked with.
    pub async fn preflight(&self, objects: &[Object], owner: &Owner, namespace: &str) -> Result<Vec<MemberError>, MemberError> {
        let mut absent = BTreeSet::new();
        let own = objects.iter().filter(|object| object.id.kind == "Namespace").map(|object| object.id.name.as_str());
        for name in own.chain([namespace]).filter(|name| !name.is_empty()) {
            if !self.namespace_was_there(name) && !self.namespace_is_there(name).await? {
                absent.insert(name);
            }
        }
        let values: Vec<Value> = objects.iter().map(|object| object.value.clone()).collect();
        let mut found = Vec::new();
        for object in objects.iter().filter(|object| !absent.contains(object.id.namespace.as_str())) {
            match self.dry_run(object, owner).await {
                Ok(()) => {}
                Err(error) if error.is_member() => return Err(error),
                Err(MemberError::UnknownKind { api_version, kind }) if objects::brought(&values, &api_version, &kind).is_some() => {}
                Err(error) => found.push(error),
            }
        }
        Ok(found)
    }

    /// Deletes an object of this binding; dependants go in the background. `uid`: the one that was applied, if it is known.
    /// True when nothing of that name and binding is there any more, false while it is going.
    pub async fn delete(&self, id: &ObjectId, uid: Option<&str>, binding: Uuid) -> Result<bool, MemberError> {
        let found = match self.metadata(id).await {
            Ok(Some(found)) => found,
            // The kind is gone, and its objects with it.
            Ok(None) | Err(MemberError::UnknownKind { .. }) => return Ok(true),
            Err(error) => return Err(error),
        };
        // Another uid: ours is gone and somebody made a new one. Another binding: a later one took the object over. No
        // binding: somebody took the labels off, and only the uid tells that it is ours.
        let same = uid.map(|uid| found.uid.as_deref() == Some(uid));
        let ours = match labels::binding(&found) {
            Some(named) => named == binding && same != Some(false),
            None => same == Some(true),
        };
        if !ours {
            return Ok(true);
        }
        if found.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let exactly_this = Preconditions { uid: found.uid, resource_version: found.resource_version };
        let api = self.api(id).await?;
        match within(api.delete(&id.name, &DeleteParams::background().preconditions(exactly_this))).await {
            // A Status says that it is gone, an object that it is going.
            Ok(answer) => Ok(answer.is_right()),
            Err(Trouble::Api(404, _)) => Ok(true),
            Err(trouble) => Err(trouble.of_object(id)),
        }
    }

    /// The API of one object's kind and namespace.
    pub async fn api(&self, id: &ObjectId) -> Result<Api<DynamicObject>, MemberError> {
        let mapping = self.mapping(&id.api_version, &id.kind).await?;
        Ok(match id.namespace.is_empty() {
            true => Api::all_with(self.client(), &mapping.resource),
            false => Api::namespaced_with(self.client(), &id.namespace, &mapping.resource),
        })
    }

    async fn must_be_ours(&self, id: &ObjectId, owner: &Owner, uid: Option<&str>) -> Result<(), MemberError> {
        let Some(found) = self.metadata(id).await? else { return Ok(()) };
        let labels = found.labels.as_ref();
        let unlabelled = labels.is_none_or(|found| !found.contains_key(labels::DIG) && !found.contains_key(labels::BINDING));
        if owner.owns(labels) || (unlabelled && uid.is_some() && found.uid.as_deref() == uid) {
            return Ok(());
        }
        let whose = match labels.and_then(|labels| Some((labels.get(labels::DIG)?, labels.get(labels::APP)?))) {
            Some((dig, app)) => format!("app {app} of deployment intent group {dig}"),
            None => "not made by Drover".to_owned(),
        };
        Err(MemberError::Foreign { id: Box::new(id.clone()), whose })
    }

    pub(crate) async fn patch(&self, object: &Object, dry_run: bool) -> Result<Applied, MemberError> {
        let api = self.api(&object.id).await?;
        let params = PatchParams { dry_run, force: true, field_manager: Some(FIELD_MANAGER.into()), field_validation: None };
        let patch: Patch<&Value> = Patch::Apply(&object.value);
        // Only metadata is wanted back, and only metadata is read.
        let answer = within(api.patch_metadata(&object.id.name, &params, &patch)).await;
        let metadata = match answer.map_err(|trouble| trouble.of_object(&object.id)) {
            Ok(answer) => answer.metadata,
            Err(MemberError::Refused { id, .. }) if self.namespace_has_gone(&id.namespace).await? => return Err(MemberError::Conflict(id)),
            Err(error) => return Err(error),
        };
        Ok(Applied {
            uid: metadata.uid.unwrap_or_default().into(),
            generation: metadata.generation,
            resource_version: metadata.resource_version.unwrap_or_default(),
        })
    }
}

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) enum Trouble {
    Api(u16, String),
    Transport(String),
}

pub(crate) async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => Err(Trouble::Api(status.code, status.message)),
        Ok(Err(error)) => Err(Trouble::Transport(chain(&error))),
        Err(_) => Err(Trouble::Transport(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}

/// The error and its causes: kube's own text ends at "ServiceError".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

impl Trouble {
    /// Asked for something general: a refusal is about the credential.
    pub(crate) fn of_member(self) -> MemberError {
        match self {
            Self::Api(401 | 403, message) => MemberError::Unauthorized(message),
            Self::Api(code, message) => MemberError::Unreachable(format!("answered {code}: {message}")),
            Self::Transport(text) => MemberError::Unreachable(text),
        }
    }
    /// Asked for an object: 403 may be a quota or an admission plugin as well as the credential, its words say which.
    pub(crate) fn of_object(self, id: &ObjectId) -> MemberError {
        match self {
            Self::Api(401, message) => MemberError::Unauthorized(message),
            Self::Api(409, _) => MemberError::Conflict(Box::new(id.clone())),
            Self::Api(code @ (429 | 500..), message) => MemberError::Unreachable(format!("answered {code}: {message}")),
            Self::Api(_, reason) => MemberError::Refused { id: Box::new(id.clone()), reason },
            Self::Transport(text) => MemberError::Unreachable(text),
        }
    }
}
