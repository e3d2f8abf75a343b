//! Use cases of cluster-manager.

mod documents;
mod fleet;
mod model;

use std::sync::Arc;

use drover_api::members::{MemberCredential, SecretKubeconfig};
use drover_members::Clients;
use drover_resources::{Documents, Kind, ResourceError, Typed, is_name};
use drover_scheduling::MemberKey;
use drover_service::{Common, Problem, codes};
use drover_store::{MigrationSet, ResultExt, SealKey, Store, StoreConfig, StoreError};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use uuid::Uuid;

pub use documents::ClusterHooks;
pub use fleet::Fleet;
pub use model::{Model, Usage};

use crate::config::Config;
use crate::resources::cluster::{CLUSTER, ClusterSpec};
use crate::resources::provider::{PROVIDER, ProviderSpec};
use crate::store::{credentials, labels, registered};

/// What handlers and tasks work on; cheap to clone.
#[derive(Clone)]
pub struct App {
    /// Tables.
    pub store: Store,
    /// Documents.
    pub documents: Documents,
    /// What is known of the members now.
    pub fleet: Fleet,
    /// Clients of the members.
    pub clients: Arc<Clients>,
    /// Settings.
    pub config: Arc<Config>,
    /// Rung when members, labels, priorities or credentials changed.
    pub changed: Arc<Notify>,
    key: Arc<SealKey>,
}

/// A cluster with its labels.
pub struct LabelledCluster {
    /// The document.
    pub document: Typed<ClusterSpec>,
    /// Labels, sorted.
    pub labels: Vec<String>,
}

impl App {
    /// Connects the store.
    pub async fn connect(config: Config, common: &Common, clients: Clients) -> anyhow::Result<Self> {
        let key = Arc::new(config.key()?);
        let sets =
            [drover_resources::migrations(), MigrationSet::new("cluster-manager", sqlx::migrate!("../../migrations/cluster-manager"))];
        let store = Store::connect(&StoreConfig::new("cluster-manager", common.database_url.clone()), &sets).await?;
        let (fleet, changed) = (Fleet::default(), Arc::new(Notify::new()));
        // All of them before anybody can ask: a reader takes its first page for all there are.
        for member in registered::all(&mut *store.pool().acquire().await.map_err(StoreError::from)?).await? {
            fleet.register(member);
        }
        let hooks = ClusterHooks::new(fleet.clone(), key.clone(), changed.clone(), common.peer("placement", &common.peers.placement));
        let documents = Documents::new(store.clone(), hooks);
        Ok(Self { store, documents, fleet, clients: Arc::new(clients), config: Arc::new(config), changed, key })
    }

    /// A document that must exist.
    pub async fn document<T: DeserializeOwned>(&self, kind: &Kind, path: &str) -> Result<Typed<T>, Problem> {
        let mut db = self.store.pool().acquire().await.map_err(StoreError::from)?;
        let found = drover_resources::get(&mut db, kind, path).await?;
        Ok(found.ok_or_else(|| ResourceError::NotFound { title: kind.title, path: path.to_owned() })?)
    }

    /// Id of a cluster that must exist.
    pub async fn cluster_id(&self, provider: &str, cluster: &str) -> Result<Uuid, Problem> {
        let path = format!("/v2/cluster-providers/{provider}/clusters/{cluster}");
        // What cannot be a name cannot exist (and the database would choke on some of it).
        if !is_name(provider) || !is_name(cluster) {
            return Err(ResourceError::NotFound { title: CLUSTER.title, path }.into());
        }
        Ok(self.document::<ClusterSpec>(&CLUSTER, &path).await?.id)
    }

    /// Clusters of a provider with their labels, by name.
    pub async fn clusters_of(&self, provider: &str) -> Result<Vec<LabelledCluster>, Problem> {
        let path = format!("/v2/cluster-providers/{provider}");
        if !is_name(provider) {
            return Err(ResourceError::NotFound { title: PROVIDER.title, path }.into());
        }
        let provider = self.document::<ProviderSpec>(&PROVIDER, &path).await?;
        let mut db = self.store.pool().acquire().await.map_err(StoreError::from)?;
        let mut clusters = Vec::new();
        for document in drover_resources::children(&mut db, &CLUSTER, provider.id).await? {
            let labels = labels::of(&mut db, document.id).await?;
            clusters.push(LabelledCluster { document, labels });
        }
        Ok(clusters)
    }

    /// Id of the cluster that a label is below.
    async fn labelled(&self, provider: &str, cluster: &str) -> Result<Uuid, Problem> {
        self.cluster_id(provider, cluster).await.map_err(|problem| match problem.code() {
            code if code == codes::NOT_FOUND => {
                ResourceError::ParentNotFound { path: format!("/v2/cluster-providers/{provider}/clusters/{cluster}") }.into()
            }
            _ => problem,
        })
    }

    /// Labels of a cluster.
    pub async fn labels(&self, provider: &str, cluster: &str) -> Result<Vec<String>, Problem> {
        let id = self.labelled(provider, cluster).await?;
        let mut db = self.store.pool().acquire().await.map_err(StoreError::from)?;
        Ok(labels::of(&mut db, id).await?)
    }

    /// Gives a cluster a label.
    pub async fn add_label(&self, provider: &str, cluster: &str, label: &str) -> Result<(), Problem> {
        let id = self.labelled(provider, cluster).await?;
        let mut db = self.store.pool().acquire().await.map_err(StoreError::from)?;
        labels::add(&mut db, id, label).await.map_constraint::<Problem>(|name| match name {
            "cluster_label_pkey" => Some(codes::ALREADY_EXISTS.problem("ClusterLabel already exists")),
            "cluster_label_cluster_id_fkey" => Some(codes::PARENT_NOT_FOUND.problem("The cluster has just been deleted")),
            _ => None,
        })?;
        self.changed.notify_one();
        Ok(())
    }

    /// Takes a label from a cluster; false: it had no such label.
    pub async fn remove_label(&self, provider: &str, cluster: &str, label: &str) -> Result<bool, Problem> {
        let id = self.labelled(provider, cluster).await?;
        let mut db = self.store.pool().acquire().await.map_err(StoreError::from)?;
        let removed = labels::remove(&mut db, id, label).await?;
        self.changed.notify_one();
        Ok(removed)
    }

    /// The kubeconfig of a member.
    pub async fn credential(&self, key: &MemberKey) -> Result<MemberCredential, Problem> {
        let id = self.cluster_id(key.provider(), key.cluster()).await?;
        let mut db = self.store.pool().acquire().await.map_err(StoreError::from)?;
        let found = credentials::get(&mut db, &self.key, id).await?;
        let (version, kubeconfig) = found.ok_or_else(|| codes::NOT_FOUND.problem(format!("{key} has no kubeconfig")))?;
        Ok(MemberCredential { version, kubeconfig: SecretKubeconfig::new(kubeconfig.expose_secret().to_owned()) })
    }
}
