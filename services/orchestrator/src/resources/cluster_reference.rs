//! Cluster references: the clusters of a logical cloud.

use drover_api::scheduling::MemberKey;
use drover_resources::{DocumentKind, Invalid, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::LOGICAL_CLOUD;

/// A reference to a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterReferenceSpec {
    /// Provider of the cluster.
    #[serde(rename = "clusterProvider", alias = "clusterprovider")]
    pub cluster_provider: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Stored for EMCO's clients; has no effect.
    #[serde(default, rename = "loadBalancerIP", alias = "loadbalancerIp", alias = "loadBalancerIp")]
    pub load_balancer_ip: String,
    /// Stored for EMCO's clients; has no effect.
    #[serde(default)]
    pub certificate: String,
}

impl ClusterReferenceSpec {
    /// The member that it refers to.
    pub fn member(&self) -> MemberKey {
        MemberKey::new(&self.cluster_provider, &self.cluster)
    }
}

impl Spec for ClusterReferenceSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let named = |field: &str, value: &str| value.is_empty().then(|| format!("spec.{field} is empty"));
        Invalid::unless_empty(
            [named("clusterProvider", &self.cluster_provider), named("cluster", &self.cluster)].into_iter().flatten().collect(),
        )
    }
}

/// Cluster references.
pub static CLUSTER_REFERENCE: DocumentKind =
    DocumentKind::of::<ClusterReferenceSpec>("cluster-reference", "ClusterReference", "cluster-references", &["clusterReference"])
        .below(&LOGICAL_CLOUD)
        .put(Put::None);
