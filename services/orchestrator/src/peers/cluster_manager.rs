//! Client of cluster-manager: closing a cluster that is drained, the labels of clusters, the users of logical clouds, and which agents
//! clusters are to run.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use drover_api::agents::AgentOrders;
use drover_api::members::{CordonOrder, UserKubeconfig, UserOrder, UserState};
use drover_api::scheduling::MemberKey;
use drover_service::clients::cluster_manager::Client;
use drover_service::{Answer, Peer, PeerError, segment};
use serde::Deserialize;
use uuid::Uuid;

/// The operations of cluster-manager that orchestrator uses.
#[async_trait]
pub trait ClusterManager: Send + Sync {
    /// Closes a cluster to new copies of apps, which may be repeated. Fails when cluster-manager is unavailable or knows no such cluster.
    async fn cordon(&self, member: &MemberKey, reason: &str) -> Result<(), PeerError>;
    /// The clusters of a provider with their labels; none if there is no such provider. Fails when cluster-manager is unavailable.
    async fn labels(&self, provider: &str) -> Result<BTreeMap<String, BTreeSet<String>>, PeerError>;
    /// Makes a user of a cluster, or renews its certificate if that ends soon. Repeating it has no other effect. Fails when
    /// cluster-manager is unavailable or the cluster refuses.
    async fn issue_user(&self, member: &MemberKey, id: Uuid, order: &UserOrder) -> Result<UserState, PeerError>;
    /// The kubeconfig of a user. Fails when cluster-manager is unavailable or there is no such user.
    async fn user_kubeconfig(&self, member: &MemberKey, id: Uuid) -> Result<UserKubeconfig, PeerError>;
    /// Deletes the key and the certificate of a user. Repeating it has no effect. Fails when cluster-manager is unavailable.
    async fn forget_user(&self, member: &MemberKey, id: Uuid) -> Result<(), PeerError>;
    /// The agents that clusters are to run. Fails when cluster-manager is unavailable.
    async fn agents(&self) -> Result<AgentOrders, PeerError>;
}

/// Cluster-manager over REST: the generated client, and the peer itself for documents.
pub struct RestClusterManager {
    client: Client,
    documents: Peer,
}

impl RestClusterManager {
    /// Uses this peer for the generated client and for documents.
    pub fn new(peer: Peer) -> Self {
        Self { client: peer.clone().into(), documents: peer }
    }
}

#[derive(Deserialize)]
struct Labelled {
    metadata: Name,
    labels: Vec<Label>,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct Label {
    #[serde(rename = "clusterLabel")]
    label: String,
}

#[async_trait]
impl ClusterManager for RestClusterManager {
    async fn cordon(&self, member: &MemberKey, reason: &str) -> Result<(), PeerError> {
        let order = CordonOrder { reason: reason.to_owned(), abandoned: false };
        self.client.cluster_cordon(member.provider(), member.cluster(), None, &order).await.answer(&self.client).map(drop)
    }

    async fn issue_user(&self, member: &MemberKey, id: Uuid, order: &UserOrder) -> Result<UserState, PeerError> {
        self.client.member_user_put(&member.0, &id, order).await.answer(&self.client)
    }

    async fn user_kubeconfig(&self, member: &MemberKey, id: Uuid) -> Result<UserKubeconfig, PeerError> {
        self.client.member_user_kubeconfig(&member.0, &id).await.answer(&self.client)
    }

    async fn forget_user(&self, member: &MemberKey, id: Uuid) -> Result<(), PeerError> {
        self.client.member_user_delete(&member.0, &id).await.found(&self.client).map(drop)
    }

    async fn labels(&self, provider: &str) -> Result<BTreeMap<String, BTreeSet<String>>, PeerError> {
        let path = format!("/v2/cluster-providers/{}/clusters?withLabels=true", segment(provider));
        let clusters: Vec<Labelled> = self.documents.find(&path).await?.unwrap_or_default();
        let of = |cluster: Labelled| (cluster.metadata.name, cluster.labels.into_iter().map(|label| label.label).collect());
        Ok(clusters.into_iter().map(of).collect())
    }

    async fn agents(&self) -> Result<AgentOrders, PeerError> {
        self.client.agent_orders().await.answer(&self.client)
    }
}
