//! What all handlers and workers share: the store, the feed of statuses, and which worker serves which member.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_api::bindings::{BindingStatus, BoundsOrder, DesiredBindings, DesiredState, Phase, TestOrder, TestRun};
use drover_api::members::MemberCredential;
use drover_api::traffic::CopyEndpoints;
use drover_members::objects::{BundleError, flatten};
use drover_members::{Clients, Member, MemberError, kubeconfig};
use drover_scheduling::MemberKey;
use drover_service::clients::cluster_manager;
use drover_service::{Answer, Common, FeedHub, Peer, PeerError, Problem, codes};
use drover_store::failpoint::Failpoints;
use drover_store::{SealKey, Store, StoreConfig, StoreError};
use serde_json::Value;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::group_commit::GroupCommit;
use crate::recent_bundles::RecentBundles;
use crate::shared::Shared;
use crate::store;
use crate::store::bundles::{SealedBundle, is_export};
use crate::store::inventory::{Answered, Intention, Replicas};

/// Why a use case failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database failed to carry out a statement with the writes of several bindings.
    #[error(transparent)]
    Group(#[from] Arc<StoreError>),
    /// A member failed or refused.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The bundle cannot be applied to any member.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A request has the same binding twice.
    #[error("the request has the binding {0} twice")]
    Repeated(Uuid),
    /// A writer with a higher fence has stored this binding.
    #[error("a newer writer has stored this binding: the fence is stale")]
    StaleFence,
    /// The bundle is not stored.
    #[error("there is no bundle {0}")]
    UnknownBundle(Arc<str>),
    /// The binding is not stored.
    #[error("there is no such binding")]
    UnknownBinding,
    /// No tests of its chart were asked for.
    #[error("no tests of this binding were asked for")]
    NoTests,
    /// Objects of the binding may still exist.
    #[error("the binding is not gone yet")]
    NotGone,
    /// A failpoint of a test.
    #[error(transparent)]
    Injected(#[from] drover_store::failpoint::Injected),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error {
            Error::Store(ref store) if is_away(store) => Self::failed(codes::STORE_UNAVAILABLE, error),
            Error::Group(ref store) if is_away(store) => Self::failed(codes::STORE_UNAVAILABLE, error),
            Error::Store(_) | Error::Group(_) | Error::Member(_) | Error::Injected(_) => Self::internal(error),
            Error::Bundle(_) | Error::Repeated(_) => codes::INVALID.problem(detail),
            Error::StaleFence => codes::STALE_FENCE.problem(detail),
            Error::UnknownBundle(_) => codes::REFERENCE_NOT_FOUND.problem(detail),
            Error::UnknownBinding | Error::NoTests => codes::NOT_FOUND.problem(detail),
            Error::NotGone => codes::WRONG_STATE.problem(detail),
        }
    }
}

/// Whether the database cannot be reached or was busy with the same rows, so that the request may be repeated.
fn is_away(store: &StoreError) -> bool {
    matches!(store, StoreError::Unavailable(_)) || store.is_contended()
}

/// The pod network of each member that has one.
pub type Networks = BTreeMap<MemberKey, String>;

/// Bindings that a worker must reconcile again, each with its row if that was just stored and nothing else is known to have changed since.
pub type DirtyBindings = BTreeMap<Uuid, Option<Box<store::bindings::Row>>>;

/// Collects [`DirtyBindings`] for the worker of a member.
#[derive(Default)]
pub struct Dirty {
    bindings: Mutex<DirtyBindings>,
    changed: Notify,
}

impl Dirty {
    fn add(&self, id: Uuid) {
        self.insert(id, None);
    }

    /// Adds a binding with the row that was stored for it.
    fn add_stored(&self, row: store::bindings::Row) {
        self.insert(row.desired.id, Some(Box::new(row)));
    }

    fn insert(&self, id: Uuid, row: Option<Box<store::bindings::Row>>) {
        let mut bindings = self.bindings.lock().unwrap_or_else(PoisonError::into_inner);
        // Of two that come at the same time it is not known which is the newer one.
        let row = if bindings.contains_key(&id) { None } else { row };
        bindings.insert(id, row);
        drop(bindings);
        self.changed.notify_one();
    }

    /// Waits until there are some, and takes all.
    pub async fn take(&self) -> DirtyBindings {
        loop {
            let taken = std::mem::take(&mut *self.bindings.lock().unwrap_or_else(PoisonError::into_inner));
            if !taken.is_empty() {
                return taken;
            }
            self.changed.notified().await;
        }
    }
}

/// State that all handlers and workers share; clones are cheap.
#[derive(Clone)]
pub struct App {
    /// The database.
    pub store: Store,
    /// Id of this installation.
    pub hub: Uuid,
    /// The feed `bindings`.
    pub statuses: FeedHub<BindingStatus>,
    /// The feed `endpoints`.
    pub endpoints: FeedHub<CopyEndpoints>,
    /// Clients for the members.
    pub clients: Arc<Clients>,
    /// The service that has members and their kubeconfigs.
    pub cluster_manager: Peer,
    /// Points at which tests stop the service.
    pub failpoints: Failpoints,
    /// Process context.
    pub common: Common,
    workers: Arc<Mutex<HashMap<MemberKey, Arc<Dirty>>>>,
    networks: Arc<Mutex<Arc<Networks>>>,
    /// Whether the names of a project could not be settled when the networks changed.
    pub(crate) names_due: Arc<AtomicBool>,
    /// The members whose endpoints have been listed since the service started.
    listed: Arc<Mutex<BTreeSet<MemberKey>>>,
    /// Whether the list of members has been received, so that a member without a worker is not registered.
    members_known: Arc<AtomicBool>,
    /// What is about to be applied to members.
    pub intentions: GroupCommit<Intention, Option<Replicas>>,
    /// What members have answered.
    pub answers: GroupCommit<Answered, ()>,
    recent_bundles: Arc<RecentBundles>,
    /// Values that bindings have in common, kept once.
    pub shared: Arc<Shared>,
}

/// Writes intentions to the database.
fn intentions(store: &Store) -> GroupCommit<Intention, Option<Replicas>> {
    let store = store.planned_once();
    GroupCommit::new(move |all| {
        let store = store.clone();
        Box::pin(async move { store::inventory::intend(&store, all).await })
    })
}

/// Writes answers to the database.
fn answers(store: &Store) -> GroupCommit<Answered, ()> {
    let store = store.planned_once();
    GroupCommit::new(move |all| {
        let store = store.clone();
        Box::pin(async move { store::inventory::applied(&store, all).await.map(|()| vec![(); all.len()]) })
    })
}

impl App {
    /// A member's current kubeconfig.
    pub async fn credential(&self, member: &MemberKey) -> Result<MemberCredential, PeerError> {
        let cluster_manager: cluster_manager::Client = self.cluster_manager.clone().into();
        cluster_manager.member_kubeconfig_get(&member.0).await.answer(&cluster_manager)
    }

    /// A client of a member, apart from that of its worker; else why there is none.
    pub async fn member(&self, key: &MemberKey) -> Result<Member, String> {
        let credential = self.credential(key).await.map_err(|error| error.to_string())?;
        let vetted = kubeconfig::vet(credential.kubeconfig.expose()).map_err(|error| error.to_string())?.linked(credential.linked);
        let client = self.clients.get(key, credential.version, &vetted).await.map_err(|error| error.to_string())?;
        Ok(Member::new(client))
    }

    /// Connects the store and publishes what is known of each binding before any member has been asked.
    pub async fn connect(common: &Common, key: SealKey, clients: Arc<Clients>, failpoints: Failpoints) -> anyhow::Result<Self> {
        let config = StoreConfig::new("resource-synchronizer", common.database_url.clone());
        let store = Store::connect(&config, &[store::migrations()]).await?.with_key(Arc::new(key));
        store::bundles::seal_all(&store).await?;
        let check = store.clone();
        common.readiness.check("database", move || {
            let store = check.clone();
            async move { store.check().await.map_err(|error| error.to_string()) }
        });
        let hub = store::hub(&store).await?;
        let (statuses, shared) = (FeedHub::new(), Shared::default());
        for row in store::bindings::all(&store).await?.into_iter().filter(|row| !row.stand_in) {
            statuses.publish(row.desired.id.to_string(), Some(first_status(&shared.row(row))));
        }
        Ok(Self {
            intentions: intentions(&store),
            answers: answers(&store),
            store,
            hub,
            statuses,
            endpoints: FeedHub::new(),
            clients,
            cluster_manager: common.peer("cluster-manager", &common.peers.cluster_manager),
            failpoints,
            common: common.clone(),
            workers: Arc::default(),
            networks: Arc::default(),
            listed: Arc::default(),
            members_known: Arc::default(),
            names_due: Arc::default(),
            recent_bundles: Arc::default(),
            shared: Arc::new(shared),
        })
    }

    /// The objects of a bundle; `None` if it is not stored.
    pub async fn bundle(&self, digest: &str) -> Result<Option<Arc<Vec<Value>>>, StoreError> {
        match self.recent_bundles.get(digest) {
            Some(objects) => Ok(Some(objects)),
            None => Ok(store::bundles::get(&self.store, digest).await?.map(Arc::new)),
        }
    }

    /// Stores desired bindings with their bundle, and wakes the workers of their members.
    pub async fn put_bindings(&self, DesiredBindings { bundle, bindings }: DesiredBindings) -> Result<(), Error> {
        let mut missing = BTreeSet::new();
        if let Some(repeated) = bindings.iter().find(|binding| !missing.insert(binding.id)) {
            return Err(Error::Repeated(repeated.id));
        }
        let sealed = match &bundle {
            Some(bundle) => Some(SealedBundle::of(&self.store, bundle, flatten(&bundle.objects)?.iter().any(is_export))?),
            None => None,
        };
        let rows = store::bindings::put(&self.store, sealed.as_ref(), &bindings).await?;
        let bytes = sealed.map(|sealed| sealed.bytes);
        if let Some((bundle, bytes)) = bundle.zip(bytes) {
            self.recent_bundles.keep(bundle, bytes);
        }
        for row in &rows {
            missing.remove(&row.desired.id);
        }
        self.announce(rows).await?;
        let Some(refused) = bindings.iter().find(|binding| missing.contains(&binding.id)) else { return Ok(()) };
        let known = refused.state == DesiredState::Absent || store::bundles::exists(&self.store, &refused.digest).await?;
        Err(if known { Error::StaleFence } else { Error::UnknownBundle(refused.digest.clone()) })
    }

    /// Lets the workers know of rows that were stored.
    async fn announce(&self, mut rows: Vec<store::bindings::Row>) -> Result<(), Error> {
        for row in &mut rows {
            self.give_up(row).await?;
        }
        let networks = self.networks();
        let named = || rows.iter().filter(|row| networks.contains_key(&row.desired.member)).map(|row| &row.desired);
        // Before the copies themselves are worked at: one that goes waits for who keeps its names.
        for project in named().map(|desired| &desired.dig.project).collect::<BTreeSet<_>>() {
            self.settle_names(project).await?;
        }
        let ids: Vec<Uuid> = named().map(|desired| desired.id).collect();
        if !ids.is_empty() {
            self.wake_stand_ins(&ids).await?;
        }
        for digest in named().map(|desired| &desired.digest).collect::<BTreeSet<_>>() {
            self.wake_exports(digest).await?;
        }
        let workers = self.workers();
        for row in rows {
            match workers.get(&row.desired.member) {
                // An object is written only if the row is still the newest; before objects are deleted, the row is read.
                Some(dirty) if row.desired.state == DesiredState::Present => dirty.add_stored(row),
                Some(dirty) => dirty.add(row.desired.id),
                // Under the lock, so that a worker which starts now publishes after this.
                None => self.statuses.publish_if_changed(row.desired.id.to_string(), Some(first_status(&row))),
            }
        }
        Ok(())
    }

    /// Asks for a run of tests and wakes the member's worker.
    pub async fn put_test(&self, id: Uuid, order: TestOrder) -> Result<(), Error> {
        let row = store::bindings::get(&self.store, id).await?.ok_or(Error::UnknownBinding)?;
        if !store::bindings::set_test(&self.store, id, order.run, order.fence).await? {
            return Err(Error::StaleFence);
        }
        if let Some(dirty) = self.workers().get(&row.desired.member) {
            dirty.add(id);
        }
        Ok(())
    }

    /// Stores the bounds of a binding's autoscalers, and wakes the worker of its member if they are new.
    pub async fn put_bounds(&self, id: Uuid, order: &BoundsOrder) -> Result<(), Error> {
        let row = store::bindings::get(&self.store, id).await?.ok_or(Error::UnknownBinding)?;
        if row.bounds.is_some_and(|bounds| bounds.version > order.version) {
            return Err(Error::StaleFence);
        }
        if store::bindings::set_bounds(&self.store, id, order).await?
            && let Some(dirty) = self.workers().get(&row.desired.member)
        {
            dirty.add(id);
        }
        Ok(())
    }

    /// The run of tests that was asked for last.
    pub async fn test_run(&self, id: Uuid) -> Result<TestRun, Error> {
        let row = store::bindings::get(&self.store, id).await?.ok_or(Error::UnknownBinding)?;
        store::tested::run_of(&row).ok_or(Error::NoTests)
    }

    /// The status of a binding, as the feed has it.
    pub fn status(&self, id: Uuid) -> Result<BindingStatus, Error> {
        self.statuses.get(&id.to_string()).map(|status| (*status).clone()).ok_or(Error::UnknownBinding)
    }

    /// Deletes a binding that is gone; does nothing if it is not stored.
    pub async fn forget_binding(&self, id: Uuid) -> Result<(), Error> {
        let Some(row) = store::bindings::get(&self.store, id).await? else { return Ok(()) };
        if !row.gone || !store::bindings::forget(&self.store, id).await? {
            return Err(Error::NotGone);
        }
        self.statuses.publish(id.to_string(), None);
        if let Some(dirty) = self.workers().get(&row.desired.member) {
            dirty.add(id);
        }
        Ok(())
    }

    /// All registered members.
    pub fn members(&self) -> Vec<MemberKey> {
        self.workers().keys().cloned().collect()
    }

    /// Registers the worker of a member: from now on, the returned set has the bindings that change.
    pub fn adopt(&self, member: &MemberKey) -> Arc<Dirty> {
        let dirty = Arc::new(Dirty::default());
        self.workers().insert(member.clone(), dirty.clone());
        dirty
    }

    /// Publishes what the worker with this set says of a binding. One whose member was deregistered says nothing any more: it may still be
    /// busy, and what was published of the member's bindings since then must stay.
    pub fn publish_of(&self, member: &MemberKey, dirty: &Arc<Dirty>, id: Uuid, status: BindingStatus) {
        let workers = self.workers();
        if workers.get(member).is_some_and(|registered| Arc::ptr_eq(registered, dirty)) {
            self.statuses.publish_if_changed(id.to_string(), Some(status));
        }
    }

    /// Removes a member that was deregistered. Its bindings stay pending until it is registered again, except those that are to go:
    /// they are gone as far as Drover can tell.
    pub async fn abandon(&self, member: &MemberKey) {
        self.workers().remove(member);
        self.clients.forget(member).await;
        match store::bindings::of_member(&self.store, member).await {
            Ok(rows) => self.publish_abandoned(rows).await,
            Err(error) => tracing::error!(cluster.id = %member, %error, "cannot read the bindings of a member that is gone"),
        }
    }

    /// Called once, when all registered members have workers: from now on, a member without a worker is not registered.
    pub async fn know_members(&self) {
        self.members_known.store(true, Ordering::Release);
        match store::bindings::all(&self.store).await {
            Ok(mut rows) => {
                rows.retain(|row| !self.workers().contains_key(&row.desired.member));
                self.publish_abandoned(rows).await;
            }
            Err(error) => tracing::error!(%error, "cannot read the bindings of members that are gone"),
        }
    }

    async fn publish_abandoned(&self, rows: Vec<store::bindings::Row>) {
        for mut row in rows {
            if let Err(error) = self.give_up(&mut row).await {
                tracing::error!(binding.id = %row.desired.id, %error, "cannot give up a binding of a member that is gone");
            }
            let workers = self.workers();
            if !row.stand_in && !workers.contains_key(&row.desired.member) {
                self.statuses.publish_if_changed(row.desired.id.to_string(), Some(first_status(&row)));
            }
        }
    }

    /// Marks a binding as gone if it is to go and its member is not registered any more: nobody can delete its objects, and its claim
    /// must not wait for them for ever. A cluster that is registered again under the same name is another member.
    pub(crate) async fn give_up(&self, row: &mut store::bindings::Row) -> Result<(), Error> {
        let unregistered = self.members_known.load(Ordering::Acquire) && !self.workers().contains_key(&row.desired.member);
        if unregistered && !row.gone && row.desired.state == DesiredState::Absent {
            row.gone = store::bindings::set_gone(&self.store, row.desired.id, row.desired.fence).await?;
            if row.stand_in {
                store::bindings::forget(&self.store, row.desired.id).await?;
            }
        }
        Ok(())
    }

    /// Lets the worker of a member look at a binding again; false if the member has none.
    pub fn wake(&self, member: &MemberKey, binding: Uuid) -> bool {
        self.workers().get(member).map(|dirty| dirty.add(binding)).is_some()
    }

    /// The pod networks of the members.
    pub fn networks(&self) -> Arc<Networks> {
        Arc::clone(&self.networks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the pod networks; false if they are the same.
    pub fn replace_networks(&self, networks: Networks) -> bool {
        let mut known = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = **known != networks;
        *known = Arc::new(networks);
        changed
    }

    /// The endpoints in a member are known from now on.
    pub fn endpoints_listed(&self, member: &MemberKey) {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).insert(member.clone());
    }

    /// Whether the endpoints in a member have been listed since the service started.
    pub fn lists_endpoints(&self, member: &MemberKey) -> bool {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).contains(member)
    }

    fn workers(&self) -> MutexGuard<'_, HashMap<MemberKey, Arc<Dirty>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The status of a binding whose member is not known.
fn first_status(row: &store::bindings::Row) -> BindingStatus {
    let (phase, code, reason) = match row.gone {
        true => (Phase::Gone, None, None),
        false => (Phase::Pending, Some("unknown_member"), Some(format!("waits for member {} to be known", row.desired.member))),
    };
    BindingStatus {
        id: row.desired.id,
        member: row.desired.member.clone(),
        digest: row.desired.digest.clone(),
        fence: row.desired.fence,
        phase,
        code: code.map(str::to_owned),
        reason,
        elsewhere: false,
        lasting: None,
        unschedulable: None,
        objects: Vec::new(),
        scaled: Vec::new(),
        kept: row.kept.clone(),
        released: vec![],
        serving_after: 0,
        tested: None,
        bounds: None,
    }
}
