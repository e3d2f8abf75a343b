//! What every handler and worker shares: the store, the feed of statuses, and who works on which member.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_api::bindings::{BindingStatus, Bundle, DesiredBinding, DesiredState, Phase};
use drover_api::members::MemberCredential;
use drover_members::objects::{BundleError, flatten};
use drover_members::{Clients, MemberError};
use drover_scheduling::MemberKey;
use drover_service::clients::cluster_manager;
use drover_service::{Answer, Common, FeedHub, Peer, PeerError, Problem, codes};
use drover_store::failpoint::Failpoints;
use drover_store::{MigrationSet, Store, StoreConfig, StoreError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::shared::Shared;
use crate::store;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A member.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A bundle that no member could take.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The path and the body speak of different bindings.
    #[error("the path names another binding than the body")]
    OtherBinding,
    /// A newer writer has spoken.
    #[error("a newer writer has spoken about this binding")]
    StaleFence,
    /// Nobody stored the bundle.
    #[error("there is no bundle {0}")]
    UnknownBundle(Arc<str>),
    /// Nobody ever spoke of this binding.
    #[error("there is no such binding")]
    UnknownBinding,
    /// Its objects may still exist.
    #[error("the binding is not gone yet")]
    NotGone,
    /// A failpoint.
    #[error(transparent)]
    Injected(#[from] drover_store::failpoint::Injected),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error {
            Error::Store(StoreError::Unavailable { .. }) => Self::failed(codes::STORE_UNAVAILABLE, error),
            Error::Store(ref store) if store.is_contended() => Self::failed(codes::STORE_UNAVAILABLE, error),
            Error::Store(_) | Error::Member(_) | Error::Injected(_) => Self::internal(error),
            Error::Bundle(_) => codes::INVALID.problem(detail),
            Error::OtherBinding => codes::MISMATCHED_NAME.problem(detail),
            Error::StaleFence => codes::STALE_FENCE.problem(detail),
            Error::UnknownBundle(_) => codes::REFERENCE_NOT_FOUND.problem(detail),
            Error::UnknownBinding => codes::NOT_FOUND.problem(detail),
            Error::NotGone => codes::WRONG_STATE.problem(detail),
        }
    }
}

/// Writes to members that write something down at once. Some sixteen for each of a hundred members may want to, and whoever is
/// asked from outside must find a connection to the store as well, of which there are ten.
const NOTES: usize = 6;

/// Bindings that a worker shall look at again.
#[derive(Default)]
pub struct Dirty {
    ids: Mutex<BTreeSet<Uuid>>,
    changed: Notify,
}

impl Dirty {
    fn add(&self, id: Uuid) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        self.changed.notify_one();
    }
    /// Waits for some, and takes them.
    pub async fn take(&self) -> BTreeSet<Uuid> {
        loop {
            let taken = std::mem::take(&mut *self.ids.lock().unwrap_or_else(PoisonError::into_inner));
            if !taken.is_empty() {
                return taken;
            }
            self.changed.notified().await;
        }
    }
}

/// Shared by everything; clones are cheap.
#[derive(Clone)]
pub struct App {
    /// Tables.
    pub store: Store,
    /// This installation.
    pub hub: Uuid,
    /// Feed `bindings`.
    pub statuses: FeedHub<BindingStatus>,
    /// Clients of members.
    pub clients: Arc<Clients>,
    /// Where kubeconfigs and members come from.
    pub cluster_manager: Peer,
    /// Points at which tests stop it.
    pub failpoints: Failpoints,
    /// Process context.
    pub common: Common,
    workers: Arc<Mutex<HashMap<MemberKey, Arc<Dirty>>>>,
    noting: Arc<Semaphore>,
    /// What bindings have in common.
    pub shared: Arc<Shared>,
}

impl App {
    /// Waits for its turn to write down what is or was done in a member, which ends when the answer is dropped.
    pub async fn turn_to_note(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.noting).acquire_owned().await.expect("nobody closes it")
    }

    /// A member's current kubeconfig.
    pub async fn credential(&self, member: &MemberKey) -> Result<MemberCredential, PeerError> {
        let cluster_manager: cluster_manager::Client = self.cluster_manager.clone().into();
        cluster_manager.member_kubeconfig_get(&member.0).await.answer(&cluster_manager)
    }

    /// Connects the store and tells readers of the feed what is known before any member has been asked.
    pub async fn connect(common: &Common, clients: Arc<Clients>, failpoints: Failpoints) -> anyhow::Result<Self> {
        let config = StoreConfig::new("resource-synchronizer", common.database_url.clone());
        let set = MigrationSet::new("resource-synchronizer", sqlx::migrate!("../../migrations/resource-synchronizer"));
        let store = Store::connect(&config, &[set]).await?;
        let check = store.clone();
        common.readiness.check("database", move || {
            let store = check.clone();
            async move { store.check().await.map_err(|error| error.to_string()) }
        });
        let hub = store::hub(&store).await?;
        let (statuses, shared) = (FeedHub::new(), Shared::default());
        for row in store::bindings::all(&store).await? {
            statuses.publish(row.desired.id.to_string(), Some(first_status(&shared.row(row))));
        }
        Ok(Self {
            store,
            hub,
            statuses,
            clients,
            cluster_manager: common.peer("cluster-manager", &common.peers.cluster_manager),
            failpoints,
            common: common.clone(),
            workers: Arc::default(),
            noting: Arc::new(Semaphore::new(NOTES)),
            shared: Arc::new(shared),
        })
    }

    /// Stores a bundle.
    pub async fn put_bundle(&self, digest: &str, bundle: &Bundle) -> Result<(), Error> {
        flatten(&bundle.objects)?;
        Ok(store::bundles::put(&self.store, digest, &bundle.objects).await?)
    }

    /// Stores what shall be true of a binding, and wakes its member's worker.
    pub async fn put_binding(&self, id: Uuid, desired: &DesiredBinding) -> Result<(), Error> {
        if desired.id != id {
            return Err(Error::OtherBinding);
        }
        if desired.state == DesiredState::Present && !store::bundles::exists(&self.store, &desired.digest).await? {
            return Err(Error::UnknownBundle(desired.digest.clone()));
        }
        let row = store::bindings::put(&self.store, desired).await?.ok_or(Error::StaleFence)?;
        let workers = self.workers();
        match workers.get(&desired.member) {
            Some(dirty) => dirty.add(id),
            // Under the lock, so that a worker that starts now publishes after this.
            None => self.statuses.publish_if_changed(id.to_string(), Some(first_status(&row))),
        }
        Ok(())
    }

    /// Status of a binding.
    pub fn status(&self, id: Uuid) -> Result<BindingStatus, Error> {
        self.statuses.get(&id.to_string()).map(|status| (*status).clone()).ok_or(Error::UnknownBinding)
    }

    /// Forgets a binding that is gone; one that is not known is forgotten already.
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

    /// A worker takes over a member: from now on it is told what changes.
    pub fn adopt(&self, member: &MemberKey) -> Arc<Dirty> {
        let dirty = Arc::new(Dirty::default());
        self.workers().insert(member.clone(), dirty.clone());
        dirty
    }

    /// A member is no more; its bindings wait for it to come back.
    pub async fn abandon(&self, member: &MemberKey) {
        self.workers().remove(member);
        self.clients.forget(member).await;
        match store::bindings::of_member(&self.store, member).await {
            Ok(rows) => rows.iter().for_each(|row| self.statuses.publish_if_changed(row.desired.id.to_string(), Some(first_status(row)))),
            Err(error) => tracing::error!(cluster.id = %member, %error, "cannot read the bindings of a member that is gone"),
        }
    }

    fn workers(&self) -> MutexGuard<'_, HashMap<MemberKey, Arc<Dirty>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What can be said of a binding without its member.
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
        unschedulable: None,
        objects: Vec::new(),
    }
}
