//! Use cases of cluster-manager.

mod agents;
mod authority;
mod copies;
mod documents;
mod exec;
mod fleet;
mod identity;
mod issuing;
mod linking;
mod model;
mod open_links;
mod succession;
mod taking;

use std::sync::Arc;

use drover_api::members::{CordonOrder, MemberCredential, SecretKubeconfig};
use drover_members::Clients;
use drover_resources::{DocumentKind, Documents, ResourceError, TypedDocument, is_name};
use drover_scheduling::{Cordon, MemberKey};
use drover_service::{Common, Problem, codes};
use drover_store::{MigrationSet, ResultExt, SealKey, Store, StoreConfig, StoreError, Tx};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use uuid::Uuid;

pub use copies::LogQuery;
pub use documents::ClusterHooks;
pub use exec::ExecOrder;
pub use fleet::{Fleet, Reports};
pub use linking::Joined;
pub use model::{Measured, Model, Usage};
pub use open_links::{LinkHealth, OpenLinks, OwnLinks};
pub use taking::TakesAgents;

use crate::config::Config;
use crate::resources::KINDS;
use crate::resources::cluster::{CLUSTER, ClusterSpec};
use crate::resources::provider::{PROVIDER, ProviderSpec};
use crate::store::{authorities, cordons, credentials, labels, registered, users};

/// What handlers and tasks work with; cheap to clone.
#[derive(Clone)]
pub struct App {
    pub store: Store,
    pub documents: Documents,
    pub fleet: Fleet,
    /// Kubernetes clients of the members.
    pub clients: Arc<Clients>,
    pub config: Arc<Config>,
    /// Notified when members, labels, priorities or credentials changed.
    pub changed: Arc<Notify>,
    /// The connections of agents of clusters that Drover cannot reach.
    pub links: OpenLinks,
    /// Set where such agents are taken.
    pub agents: Option<Arc<TakesAgents>>,
    key: Arc<SealKey>,
}

/// A cluster with its labels.
pub struct LabelledCluster {
    pub document: TypedDocument<ClusterSpec>,
    pub labels: Vec<String>,
}

impl App {
    /// Connects the store and loads the registered members. `address` is where agents of clusters connect to, if they are taken.
    ///
    /// # Errors
    /// The seal key cannot be read, or the database is unavailable or its migration fails.
    pub async fn connect(config: Config, common: &Common, clients: Clients, address: Option<String>) -> anyhow::Result<Self> {
        let key = Arc::new(config.seal.key()?);
        let sets =
            [drover_resources::migrations(), MigrationSet::new("cluster-manager", sqlx::migrate!("../../migrations/cluster-manager"))];
        let store = Store::connect(&StoreConfig::new("cluster-manager", common.database_url.clone()), &sets).await?.with_key(key.clone());
        drover_resources::seal_all(&store, KINDS).await?;
        credentials::SEALED.seal_all(&store, None).await?;
        users::SEALED.seal_all(&store, None).await?;
        let (fleet, changed, open) = (Fleet::default(), Arc::new(Notify::new()), OpenLinks::default());
        // Before the feed is served: a reader takes its first page for the complete list of members.
        for member in registered::all(&mut *store.acquire().await?).await? {
            fleet.register(member);
        }
        let hooks = ClusterHooks::new(
            fleet.clone(),
            key.clone(),
            changed.clone(),
            common.peer("placement", &common.peers.placement),
            clients.reach(),
        );
        let documents = Documents::new(store.clone(), hooks);
        let clients = clients.through(Arc::new(OwnLinks { fleet: fleet.clone(), open: open.clone() }));
        let agents = match address {
            None => None,
            Some(address) => Some(Arc::new(TakesAgents::start(&store, &key, address).await?)),
        };
        // Only where no agents are taken, there may be something left: the authority is replaced with the key.
        authorities::SEALED.seal_all(&store, None).await?;
        let (clients, config) = (Arc::new(clients), Arc::new(config));
        Ok(Self { store, documents, fleet, clients, config, changed, links: open, agents, key })
    }

    /// Replaces the authority of links if it is due.
    ///
    /// # Errors
    /// The store fails.
    pub async fn keep_authority(&self) -> anyhow::Result<()> {
        match &self.agents {
            Some(agents) => agents.keep_valid(&self.store, &self.key).await,
            None => Ok(()),
        }
    }

    /// The ways to linked members.
    pub fn own_links(&self) -> OwnLinks {
        OwnLinks { fleet: self.fleet.clone(), open: self.links.clone() }
    }

    /// Reads a document that must exist.
    ///
    /// # Errors
    /// `not_found`, or the store fails.
    pub async fn document<T: DeserializeOwned>(&self, kind: &DocumentKind, path: &str) -> Result<TypedDocument<T>, Problem> {
        let mut db = self.store.acquire().await?;
        let found = drover_resources::get(&mut db, kind, path).await?;
        Ok(found.ok_or_else(|| ResourceError::NotFound { title: kind.title, path: path.to_owned() })?)
    }

    /// The id of a cluster that must exist.
    ///
    /// # Errors
    /// `not_found`, or the store fails.
    pub async fn cluster_id(&self, provider: &str, cluster: &str) -> Result<Uuid, Problem> {
        let path = format!("/v2/cluster-providers/{provider}/clusters/{cluster}");
        // An invalid name cannot exist, and Postgres would reject some of them (NUL).
        if !is_name(provider) || !is_name(cluster) {
            return Err(ResourceError::NotFound { title: CLUSTER.title, path }.into());
        }
        Ok(self.document::<ClusterSpec>(&CLUSTER, &path).await?.id)
    }

    /// The clusters of a provider with their labels, sorted by name.
    ///
    /// # Errors
    /// `not_found` without such a provider, or the store fails.
    pub async fn clusters_of(&self, provider: &str) -> Result<Vec<LabelledCluster>, Problem> {
        let path = format!("/v2/cluster-providers/{provider}");
        if !is_name(provider) {
            return Err(ResourceError::NotFound { title: PROVIDER.title, path }.into());
        }
        let provider = self.document::<ProviderSpec>(&PROVIDER, &path).await?;
        let mut db = self.store.acquire().await?;
        let mut clusters = Vec::new();
        for document in drover_resources::children(&mut db, &CLUSTER, provider.id).await? {
            let labels = labels::of(&mut db, document.id).await?;
            clusters.push(LabelledCluster { document, labels });
        }
        Ok(clusters)
    }

    /// The id of the cluster whose labels are meant; `parent_not_found` if there is none.
    async fn parent_of_labels(&self, provider: &str, cluster: &str) -> Result<Uuid, Problem> {
        self.cluster_id(provider, cluster).await.map_err(|problem| match problem.code() {
            code if code == codes::NOT_FOUND => {
                ResourceError::ParentNotFound { path: format!("/v2/cluster-providers/{provider}/clusters/{cluster}") }.into()
            }
            _ => problem,
        })
    }

    /// The labels of a cluster, sorted.
    ///
    /// # Errors
    /// `parent_not_found` without such a cluster, or the store fails.
    pub async fn labels(&self, provider: &str, cluster: &str) -> Result<Vec<String>, Problem> {
        let id = self.parent_of_labels(provider, cluster).await?;
        let mut db = self.store.acquire().await?;
        Ok(labels::of(&mut db, id).await?)
    }

    /// Adds a label to a cluster.
    ///
    /// # Errors
    /// `already_exists`, `parent_not_found`, or the store fails.
    pub async fn add_label(&self, provider: &str, cluster: &str, label: &str, dry: bool) -> Result<(), Problem> {
        let id = self.parent_of_labels(provider, cluster).await?;
        let mut db = self.store.begin().await?;
        labels::add(&mut db, id, label).await.map_constraint::<Problem>(|name| match name {
            "cluster_label_pkey" => Some(codes::ALREADY_EXISTS.problem("ClusterLabel already exists")),
            "cluster_label_cluster_id_fkey" => Some(codes::PARENT_NOT_FOUND.problem("The cluster has just been deleted")),
            _ => None,
        })?;
        self.settle(db, dry).await?;
        Ok(())
    }

    /// Commits, and lets the feed of members know; a dry run does neither.
    async fn settle(&self, tx: Tx, dry: bool) -> Result<(), Problem> {
        if !dry {
            tx.commit().await.map_err(StoreError::from)?;
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Removes a label from a cluster; false if the cluster had no such label.
    ///
    /// # Errors
    /// `parent_not_found` without such a cluster, or the store fails.
    pub async fn remove_label(&self, provider: &str, cluster: &str, label: &str, dry: bool) -> Result<bool, Problem> {
        let id = self.parent_of_labels(provider, cluster).await?;
        let mut db = self.store.begin().await?;
        let removed = labels::remove(&mut db, id, label).await?;
        self.settle(db, dry).await?;
        Ok(removed)
    }

    /// Closes a cluster to new copies of apps, which may be repeated.
    ///
    /// # Errors
    /// `not_found` without such a cluster, or the store fails.
    pub async fn cordon(&self, provider: &str, cluster: &str, order: &CordonOrder, dry: bool) -> Result<Cordon, Problem> {
        let id = self.cluster_id(provider, cluster).await?;
        let mut db = self.store.begin().await?;
        let deleted = || codes::NOT_FOUND.problem("The cluster has just been deleted");
        let cordon =
            cordons::put(&mut db, id, &order.reason, order.abandoned).await.on_constraint::<Problem>("cordon_cluster_id_fkey", deleted)?;
        if !dry {
            db.commit().await.map_err(StoreError::from)?;
            self.fleet.set_cordon(&MemberKey::new(provider, cluster), Some(cordon.clone()));
            self.changed.notify_one();
        }
        Ok(cordon)
    }

    /// Opens a cluster again, which may be repeated.
    ///
    /// # Errors
    /// `not_found` without such a cluster, or the store fails.
    pub async fn uncordon(&self, provider: &str, cluster: &str, dry: bool) -> Result<(), Problem> {
        let id = self.cluster_id(provider, cluster).await?;
        if dry {
            return Ok(());
        }
        let mut db = self.store.acquire().await?;
        cordons::remove(&mut db, id).await?;
        self.fleet.set_cordon(&MemberKey::new(provider, cluster), None);
        self.changed.notify_one();
        Ok(())
    }

    /// The kubeconfig of a member, unsealed.
    ///
    /// # Errors
    /// `not_found` without such a cluster or without a kubeconfig; the store fails or the kubeconfig cannot be unsealed.
    pub async fn credential(&self, key: &MemberKey) -> Result<MemberCredential, Problem> {
        let id = self.cluster_id(key.provider(), key.cluster()).await?;
        let mut db = self.store.acquire().await?;
        let found = credentials::get(&mut db, &self.key, id).await?;
        let found = found.ok_or_else(|| codes::NOT_FOUND.problem(format!("{key} has no kubeconfig")))?;
        let kubeconfig = SecretKubeconfig::new(found.kubeconfig.expose_secret().to_owned());
        Ok(MemberCredential { version: found.version, kubeconfig, linked: found.linked })
    }
}
