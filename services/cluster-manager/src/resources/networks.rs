//! EMCO's networks of clusters (ncm), certificates (ca-certs) and sync objects: stored as they were sent, so that EMCO's scripts run. Drover
//! attaches no additional networks to pods, distributes no certificates and reaches clusters directly, and the response to each write says so.

use std::collections::BTreeMap;

use drover_resources::{DocumentKind, Spec};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::cluster::CLUSTER;
use super::provider::PROVIDER;

const NETWORKS: &str = "Drover attaches no additional networks to pods";
const CERTIFICATES: &str = "Drover distributes no certificates";
const SYNC_OBJECTS: &str = "Drover reaches clusters directly and needs no repository; values, which may be credentials, are not stored";

/// `…/clusters/{cluster}/networks/{network}`
pub static NETWORK: DocumentKind = DocumentKind::stored("network", "Network", "networks", &["network"], &CLUSTER, NETWORKS);

/// `…/clusters/{cluster}/provider-networks/{providerNetwork}`
pub static PROVIDER_NETWORK: DocumentKind =
    DocumentKind::stored("provider-network", "ProviderNetwork", "provider-networks", &["providerNetwork"], &CLUSTER, NETWORKS);

/// `…/cluster-providers/{clusterProvider}/ca-certs/{caCert}`
pub static CA_CERT: DocumentKind =
    DocumentKind::stored("provider-ca-cert", "ProviderCaCert", "ca-certs", &["caCert"], &PROVIDER, CERTIFICATES);

/// `…/ca-certs/{caCert}/clusters/{certCluster}`
pub static CA_CERT_CLUSTER: DocumentKind =
    DocumentKind::stored("provider-ca-cert-cluster", "ProviderCaCertCluster", "clusters", &["certCluster"], &CA_CERT, CERTIFICATES);

/// EMCO's access to a repository (git, Azure, Anthos). Its values may be credentials, for which Drover has no use, so that they are not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterSyncObjectSpec {
    /// Each pair is a map with one key, as in EMCO. Values are returned empty.
    #[serde(default, deserialize_with = "without_values")]
    pub kv: Vec<BTreeMap<String, String>>,
}

fn without_values<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<BTreeMap<String, String>>, D::Error> {
    let pairs = Vec::<BTreeMap<String, IgnoredAny>>::deserialize(deserializer)?;
    Ok(pairs.into_iter().map(|pair| pair.into_keys().map(|key| (key, String::new())).collect()).collect())
}

impl Spec for ClusterSyncObjectSpec {}

/// `…/cluster-providers/{clusterProvider}/cluster-sync-objects/{clusterSyncObject}`
pub static CLUSTER_SYNC_OBJECT: DocumentKind =
    DocumentKind::of::<ClusterSyncObjectSpec>("cluster-sync-object", "ClusterSyncObject", "cluster-sync-objects", &["clusterSyncObject"])
        .below(&PROVIDER)
        .tag("kept")
        .kept(SYNC_OBJECTS);
