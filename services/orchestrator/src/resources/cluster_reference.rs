//! Cluster references: the clusters of a logical cloud.

use drover_api::scheduling::MemberKey;
use drover_resources::{Invalid, Kind, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::LOGICAL_CLOUD;

/// Which cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterReferenceSpec {
    /// Provider.
    #[serde(rename = "clusterProvider", alias = "clusterprovider")]
    pub cluster_provider: String,
    /// Cluster.
    pub cluster: String,
    /// Kept for EMCO's clients.
    #[serde(default, rename = "loadBalancerIP", alias = "loadbalancerIp", alias = "loadBalancerIp")]
    pub load_balancer_ip: String,
    /// Kept for EMCO's clients.
    #[serde(default)]
    pub certificate: String,
}

impl ClusterReferenceSpec {
    /// The member it names.
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
pub static CLUSTER_REFERENCE: Kind =
    Kind::of::<ClusterReferenceSpec>("cluster-reference", "ClusterReference", "cluster-references", &["clusterReference"])
        .below(&LOGICAL_CLOUD)
        .put(Put::None);
