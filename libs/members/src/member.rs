//! The operations that Drover uses on the objects of one member.
//!
//! Each request has a time limit, so that a silent member delays only its own worker, by a few seconds.
//! Invariant: an object is changed or deleted only if one GET just before showed that it belongs to this app (or, if apps may share
//! it, that it is this installation's and belongs to no other app any more); deletion names uid and resource version, so that an object which was made or changed in between is not deleted.
//! One that was never applied is created without a GET, by a request that fails if something exists under its name.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::error::{MemberError, RequestError, within};
use crate::labels::{self, FIELD_MANAGER, Owner};
use crate::object_id::ObjectId;
use crate::objects::{self, Object};
use crate::serving::Expectation;
use crate::shared::Sharers;
use crate::{acting, untyped};

/// Dry runs of one preflight that are under way at the same time.
const DRY_RUNS: usize = 4;

/// How the objects of a kind are addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

/// What the member answered when an object was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Its uid.
    pub uid: Arc<str>,
    /// Its generation; `None` for kinds without one.
    pub generation: Option<i64>,
    /// Its resource version.
    pub resource_version: String,
    /// Who has chosen the number of its replicas, if it was not Drover.
    pub scaled: Option<Box<Scaled>>,
}

/// The number of replicas of a workload that another field manager than Drover has chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// The field manager: `kube-controller-manager` for an HPA, for example.
    pub by: String,
    pub replicas: i32,
}

/// One member, reached through one client. A clone shares what is known of it.
#[derive(Clone)]
pub struct Member {
    client: Client,
    /// The account as which objects of apps are written, and its client.
    account: Option<(Arc<str>, Client)>,
    pub(crate) known: Arc<Known>,
}

/// What has been found out of a member.
#[derive(Default)]
pub(crate) struct Known {
    mappings: Mutex<HashMap<(String, String), Mapping>>,
    /// Namespaces that were seen, and when.
    pub(crate) namespaces: Mutex<HashMap<String, Instant>>,
    /// A client for each account that was asked for.
    accounts: Mutex<HashMap<Arc<str>, Client>>,
}

impl Member {
    /// A member reached through this client. Sends no request yet.
    pub fn new(client: Client) -> Self {
        Self { client, account: None, known: Arc::default() }
    }

    /// The same member, of which objects of apps are written as the service account `namespace/name`. `None`: as the credential's own user.
    pub fn acting_as(&self, account: Option<&Arc<str>>) -> Self {
        let client = |account: &Arc<str>| {
            let mut known = lock(&self.known.accounts);
            known.entry(Arc::clone(account)).or_insert_with(|| acting::client_as(&self.client, account)).clone()
        };
        Self { account: account.map(|account| (Arc::clone(account), client(account))), ..self.clone() }
    }

    /// Its client, for watches and whatever is read.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The client with which objects of apps are written.
    pub fn writer(&self) -> Client {
        self.account.as_ref().map_or_else(|| self.client(), |(_, client)| client.clone())
    }

    /// How a kind is addressed. Known kinds are kept; an unknown one is asked for each time, because a CRD may have been added.
    ///
    /// # Errors
    /// When the member does not serve the kind, or does not answer.
    pub async fn mapping(&self, api_version: &str, kind: &str) -> Result<Mapping, MemberError> {
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(mapping) = lock(&self.known.mappings).get(&key) {
            return Ok(mapping.clone());
        }
        let unknown = || MemberError::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() };
        let listed = match api_version.contains('/') {
            true => within(self.client.list_api_group_resources(api_version)).await,
            false => within(self.client.list_core_api_resources(api_version)).await,
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(RequestError::Api(404, _)) => return Err(unknown()),
            Err(error) => return Err(error.of_member()),
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut known = lock(&self.known.mappings);
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

    /// Marks the checked objects of a bundle (see [`objects::flatten`]) as this app's, in the order in which to apply them. A kind
    /// that the member does not serve yet may be defined by a CRD of the same bundle.
    ///
    /// # Errors
    /// Every kind that is neither served nor defined by the bundle, once; or, alone, that the member does not answer.
    pub async fn prepare(&self, flat: &[Value], namespace: &str, owner: &Owner) -> Result<Vec<Object>, Vec<MemberError>> {
        let mut prepared = Vec::with_capacity(flat.len());
        let mut unknown: Vec<MemberError> = Vec::new();
        let mut missing = BTreeSet::new();
        for value in flat {
            let text = |field: &str| value[field].as_str().unwrap_or_default();
            let (api_version, kind) = (text("apiVersion"), text("kind"));
            if missing.contains(&(api_version, kind)) {
                continue;
            }
            let namespaced = match self.mapping(api_version, kind).await {
                Ok(mapping) => mapping.namespaced,
                Err(error @ MemberError::UnknownKind { .. }) => match objects::scope_by_crd(flat, api_version, kind) {
                    Some(namespaced) => namespaced,
                    None => {
                        missing.insert((api_version, kind));
                        unknown.push(error);
                        continue;
                    }
                },
                Err(error) => return Err(vec![error]),
            };
            prepared.push(Object::new(value.clone(), namespaced, namespace, owner));
        }
        prepared.sort();
        if unknown.is_empty() { Ok(prepared) } else { Err(unknown) }
    }

    /// Metadata of an object; `None` if it does not exist.
    ///
    /// # Errors
    /// When the kind is not served, or the member does not answer.
    pub async fn metadata(&self, id: &ObjectId) -> Result<Option<ObjectMeta>, MemberError> {
        let api = self.api(id).await?;
        let found = within(api.get_metadata_opt(&id.name)).await.map_err(RequestError::of_member)?;
        Ok(found.map(|object| object.metadata))
    }

    /// An object; `None` if it does not exist.
    ///
    /// # Errors
    /// When the kind is not served, or the member does not answer.
    pub async fn object(&self, id: &ObjectId) -> Result<Option<DynamicObject>, MemberError> {
        let api = self.api(id).await?;
        within(api.get_opt(&id.name)).await.map_err(RequestError::of_member)
    }

    /// Metadata of all objects of a kind with these labels, in any namespace, read page by page.
    ///
    /// # Errors
    /// When the kind is not served, or the member does not answer.
    pub async fn list_metadata(&self, api_version: &str, kind: &str, selector: &str) -> Result<Vec<ObjectMeta>, MemberError> {
        let mapping = self.mapping(api_version, kind).await?;
        let api: Api<DynamicObject> = Api::all_with(self.client(), &mapping.resource);
        let mut found = Vec::new();
        let mut page = ListParams::default().labels(selector).limit(500);
        loop {
            let list = within(api.list_metadata(&page)).await.map_err(RequestError::of_member)?;
            found.extend(list.items.into_iter().map(|object| object.metadata));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// Applies an object server-side and by force: Drover's fields overwrite those of other field managers, except the number of
    /// replicas, which is left to the field manager that has changed it.
    /// `uid` is that of the object which was applied before; it stays this app's even if somebody removed its labels. `start` is the
    /// number of replicas with which a moved workload starts instead of that of the manifest. `sharers` are the other bindings that
    /// contain the object with equal content, if apps may share it; while its labels name one of them, it is left as it is.
    ///
    /// # Errors
    /// When the object belongs to somebody else, the member refuses it, or the member does not answer.
    pub async fn apply(
        &self,
        object: &Object,
        owner: &Owner,
        uid: Option<&str>,
        start: Option<i32>,
        sharers: Option<&[Uuid]>,
    ) -> Result<Applied, MemberError> {
        if uid.is_none()
            && start.is_none()
            && let Some(applied) = self.apply_as_new(object).await?
        {
            return Ok(applied);
        }
        let found = match self.check_ownership(&object.id, owner, uid, sharers).await? {
            Found::Shared(found) if found.deletion_timestamp.is_some() => {
                return Err(MemberError::Conflict(Box::new(ObjectId::clone(&object.id))));
            }
            Found::Shared(found) => return Ok(answered(found)),
            Found::Ours(found) => Some(found),
            Found::Nothing => None,
        };
        if found.as_ref().and_then(was_released).is_some() {
            let applied = self.patch(object, false).await?;
            self.drop_release_note(&object.id).await?;
            return Ok(applied);
        }
        if !object.may_be_scaled() {
            return self.patch(object, false).await;
        }
        if let Some(by) = found.as_ref().and_then(scaler) {
            let applied = self.patch(&object.with_replicas(None), false).await?;
            let replicas = self.replicas(&object.id).await?;
            return Ok(Applied { scaled: Some(Box::new(Scaled { by, replicas })), ..applied });
        }
        let Some(replicas) = start else { return self.patch(object, false).await };
        self.patch(&object.with_replicas(Some(replicas)), false).await?;
        // With a field manager of its own the number is not overwritten by the manifest's when the object is applied again.
        let only_replicas = json!({
            "apiVersion": object.id.api_version, "kind": object.id.kind,
            "metadata": {"name": object.id.name}, "spec": {"replicas": replicas},
        });
        let applied = self.send(&object.id, &only_replicas, labels::MOVE_MANAGER, false).await?;
        Ok(Applied { scaled: Some(Box::new(Scaled { by: labels::MOVE_MANAGER.to_owned(), replicas })), ..applied })
    }

    /// The number of replicas that a workload is to have.
    async fn replicas(&self, id: &ObjectId) -> Result<i32, MemberError> {
        let object = within(self.api(id).await?.get(&id.name)).await.map_err(|error| error.of_object(id))?;
        // The API server sets one where nobody else does.
        Ok(object.data["spec"]["replicas"].as_i64().and_then(|replicas| i32::try_from(replicas).ok()).unwrap_or(1))
    }

    /// Whether an object could be applied: a dry run by the member, and the check to whom the object belongs.
    async fn dry_run(&self, object: &Object, owner: &Owner, sharers: Option<&[Uuid]>) -> Result<(), MemberError> {
        let (answer, ours) = tokio::join!(self.patch(object, true), self.check_ownership(&object.id, owner, None, sharers));
        match answer {
            Err(error) if error.is_member() => Err(error),
            answer => ours.map(drop).and(answer.map(drop)),
        }
    }

    /// Dry-runs a whole bundle and returns what speaks against it, one error per object. Objects that need a CRD of the same bundle or
    /// a namespace that does not exist (it is in the bundle, or [`Self::ensure_namespace`] creates it) cannot be dry-run before; they
    /// are skipped.
    ///
    /// # Errors
    /// When the member does not answer or refuses the credential.
    pub async fn preflight(
        &self,
        objects: &[Object],
        owner: &Owner,
        namespace: &str,
        shared: &Sharers,
    ) -> Result<Vec<MemberError>, MemberError> {
        let mut absent = BTreeSet::new();
        let own = objects.iter().filter(|object| object.id.kind == "Namespace").map(|object| object.id.name.as_str());
        let used = objects.iter().map(|object| object.id.namespace.as_str());
        let names: BTreeSet<&str> = own.chain(used).chain([namespace]).filter(|name| !name.is_empty()).collect();
        for name in names {
            if !self.namespace_seen_recently(name) && !self.namespace_exists(name).await? {
                absent.insert(name);
            }
        }
        let values: Vec<Value> = objects.iter().map(|object| object.value.clone()).collect();
        let mut dry_runs = Vec::new();
        for object in objects {
            if !absent.contains(object.id.namespace.as_str()) {
                dry_runs.push(self.dry_run(object, owner, shared.get(&object.id).map(Vec::as_slice)));
            }
        }
        let mut answers = stream::iter(dry_runs).buffered(DRY_RUNS);
        let mut found = Vec::new();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(()) => {}
                Err(error) if error.is_member() => return Err(error),
                Err(MemberError::UnknownKind { api_version, kind }) if objects::scope_by_crd(&values, &api_version, &kind).is_some() => {}
                Err(error) => found.push(error),
            }
        }
        Ok(found)
    }

    /// Deletes an object of this binding; dependants are deleted in the background. `uid` is that of the object which was
    /// applied, if known. Returns true when no object of that name belongs to the binding any more, false while it is being deleted.
    ///
    /// # Errors
    /// When the member refuses the deletion, or does not answer.
    pub async fn delete(&self, id: &ObjectId, uid: Option<&str>, binding: Uuid) -> Result<bool, MemberError> {
        let Some(found) = self.own(id, uid, binding).await? else { return Ok(true) };
        if found.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let exactly_this = Preconditions { uid: found.uid, resource_version: found.resource_version };
        let api = self.writing(id).await?;
        match within(api.delete(&id.name, &DeleteParams::background().preconditions(exactly_this))).await {
            // The answer is a Status once the object is deleted, and the object while it is being deleted.
            Ok(answer) => Ok(answer.is_right()),
            Err(RequestError::Api(404, _)) => Ok(true),
            Err(error) => Err(self.refusal(error, id)),
        }
    }

    /// Metadata of an object if it belongs to this binding; `uid` as in [`Self::delete`].
    pub(crate) async fn own(&self, id: &ObjectId, uid: Option<&str>, binding: Uuid) -> Result<Option<ObjectMeta>, MemberError> {
        let found = match self.metadata(id).await {
            Ok(Some(found)) => found,
            // Without its kind the object does not exist either.
            Ok(None) | Err(MemberError::UnknownKind { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Another uid: ours was deleted and somebody created a new one. Another binding: a later one took the object over. No
        // binding: somebody removed the labels, and only the uid tells that the object is ours.
        let same = uid.map(|uid| found.uid.as_deref() == Some(uid));
        let ours = match labels::binding(&found) {
            Some(named) => named == binding && same != Some(false),
            None => same == Some(true),
        };
        Ok(Some(found).filter(|_| ours))
    }

    /// The status with which the pods of a Service answer a GET request, which the API server passes on.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn ask_service(&self, asked: &Expectation) -> Result<u16, MemberError> {
        let Expectation { namespace, service, port, path } = asked;
        let path = format!("/api/v1/namespaces/{namespace}/services/{service}:{port}/proxy{path}");
        let request =
            http::Request::get(path).body(kube::client::Body::empty()).map_err(|error| MemberError::Unreachable(error.to_string()))?;
        let answer = within(self.client().send(request)).await.map_err(RequestError::of_member)?;
        Ok(answer.status().as_u16())
    }

    /// The API of one object's kind and namespace.
    ///
    /// # Errors
    /// When the kind is not served, or the member does not answer.
    pub async fn api(&self, id: &ObjectId) -> Result<Api<DynamicObject>, MemberError> {
        self.api_with(self.client(), id).await
    }

    /// Like [`Self::api`], to write an object of an app.
    pub(crate) async fn writing(&self, id: &ObjectId) -> Result<Api<DynamicObject>, MemberError> {
        self.api_with(self.writer(), id).await
    }

    async fn api_with(&self, client: Client, id: &ObjectId) -> Result<Api<DynamicObject>, MemberError> {
        let mapping = self.mapping(&id.api_version, &id.kind).await?;
        Ok(match id.namespace.is_empty() {
            true => Api::all_with(client, &mapping.resource),
            false => Api::namespaced_with(client, &id.namespace, &mapping.resource),
        })
    }

    /// Why an object could not be written.
    pub(crate) fn refusal(&self, error: RequestError, id: &ObjectId) -> MemberError {
        if let (RequestError::Api(403, reason), Some((account, _))) = (&error, &self.account)
            && let Some(verb) = acting::verb(reason)
        {
            let (id, account) = (Box::new(id.clone()), Arc::clone(account));
            return MemberError::NotPermitted { id, account, verb: verb.to_owned(), reason: reason.clone() };
        }
        error.of_object(id)
    }

    /// What exists under the object's name, and whether it may be written. `sharers`: see [`Self::apply`].
    async fn check_ownership(
        &self,
        id: &ObjectId,
        owner: &Owner,
        uid: Option<&str>,
        sharers: Option<&[Uuid]>,
    ) -> Result<Found, MemberError> {
        let Some(found) = self.metadata(id).await? else { return Ok(Found::Nothing) };
        let labels = found.labels.as_ref();
        let unlabelled = labels.is_none_or(|found| !found.contains_key(labels::DIG) && !found.contains_key(labels::BINDING));
        let released = unlabelled && was_released(&found) == Some(&owner.hub.to_string());
        if owner.owns(labels) || (unlabelled && uid.is_some() && found.uid.as_deref() == uid) || released {
            return Ok(Found::Ours(found));
        }
        if let Some(sharers) = sharers
            && labels.and_then(|found| found.get(labels::HUB)).is_some_and(|hub| *hub == owner.hub.to_string())
        {
            let shared = labels::binding(&found).is_some_and(|named| sharers.contains(&named));
            // Whoever the labels name does not contain it any more: whoever does takes it over.
            return Ok(if shared { Found::Shared(found) } else { Found::Ours(found) });
        }
        let whose = match labels.and_then(|labels| Some((labels.get(labels::DIG)?, labels.get(labels::APP)?))) {
            Some((dig, app)) => format!("app {app} of deployment intent group {dig}"),
            None => "not made by Drover".to_owned(),
        };
        Err(MemberError::Foreign { id: Box::new(id.clone()), whose })
    }

    pub(crate) async fn patch(&self, object: &Object, dry_run: bool) -> Result<Applied, MemberError> {
        self.send(&object.id, &object.value, FIELD_MANAGER, dry_run).await
    }

    /// Applies an object if none exists under its name. The resource version makes the difference: an apply that names one changes an object of
    /// this version only, and no object of an app has the version 1, because etcd's first write has the number 2. What is made gets a version
    /// of its own. A POST would not do, because its fields would belong to another field manager than those of later applies.
    ///
    /// `None`: the API server refuses this, most often because something exists. Whether it also refuses the usual apply, and why, is not
    /// known then: servers before Kubernetes 1.23 refuse each Service that names a version.
    async fn apply_as_new(&self, object: &Object) -> Result<Option<Applied>, MemberError> {
        let api = self.writing(&object.id).await?;
        let mut value = object.value.clone();
        value["metadata"]["resourceVersion"] = json!("1");
        match send_apply(&api, &object.id.name, &value, FIELD_MANAGER, false).await {
            Ok(metadata) => Ok(Some(answered(metadata))),
            Err(RequestError::Api(..)) => Ok(None),
            Err(error) => Err(self.refusal(error, &object.id)),
        }
    }

    async fn send(&self, id: &ObjectId, value: &Value, manager: &str, dry_run: bool) -> Result<Applied, MemberError> {
        let api = self.writing(id).await?;
        let answer = send_apply(&api, &id.name, value, manager, dry_run).await;
        let metadata = match answer.map_err(|error| self.refusal(error, id)) {
            Ok(metadata) => metadata,
            Err(MemberError::Refused { id, .. } | MemberError::NotPermitted { id, .. })
                if self.namespace_vanished(&id.namespace).await? =>
            {
                return Err(MemberError::Conflict(id));
            }
            Err(MemberError::Refused { reason, .. }) if untyped::has_duplicate_keys(&reason) => {
                self.write_plainly(id, value, manager, dry_run).await?
            }
            Err(error) => return Err(error),
        };
        Ok(answered(metadata))
    }
}

/// Sends a server-side apply by force. Only metadata is asked for, because only metadata is read.
async fn send_apply(api: &Api<DynamicObject>, name: &str, value: &Value, manager: &str, dry_run: bool) -> Result<ObjectMeta, RequestError> {
    let params = PatchParams { dry_run, force: true, field_manager: Some(manager.into()), field_validation: None };
    Ok(within(api.patch_metadata(name, &params, &Patch::Apply(value))).await?.metadata)
}

/// What exists under the name of an object that is to be applied.
enum Found {
    Nothing,
    /// It may be written.
    Ours(ObjectMeta),
    /// Another app contains it with equal content, and its labels name that app.
    Shared(ObjectMeta),
}

/// The installation that has left this object behind.
fn was_released(metadata: &ObjectMeta) -> Option<&String> {
    metadata.annotations.as_ref()?.get(labels::RELEASED)
}

fn answered(metadata: ObjectMeta) -> Applied {
    Applied {
        uid: metadata.uid.unwrap_or_default().into(),
        generation: metadata.generation,
        resource_version: metadata.resource_version.unwrap_or_default(),
        scaled: None,
    }
}

/// The field manager other than Drover that has chosen the number of replicas, according to the object's managed fields.
fn scaler(metadata: &ObjectMeta) -> Option<String> {
    let entries = metadata.managed_fields.iter().flatten().filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER));
    let owners = entries.filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some()));
    owners.max_by_key(|entry| entry.time.as_ref().map(|time| time.0)).and_then(|entry| entry.manager.clone())
}

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
