//! Cluster providers: a cloud or a data centre, and how much its clusters are preferred.

use drover_resources::{DocumentKind, Echo, Invalid, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Spec of a provider. Returned only if the client sent one, as EMCO's clients expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProviderSpec {
    /// 1 (filled first) to 10 (filled last).
    #[serde(default = "lowest_priority")]
    #[schema(minimum = 1, maximum = 10, default = 10)]
    pub priority: u8,
}

fn lowest_priority() -> u8 {
    10
}

impl Spec for ProviderSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        if (1..=10).contains(&self.priority) {
            return Ok(());
        }
        Err(Invalid::rule(format!("spec.priority: {} is not in 1..10", self.priority)))
    }
}

/// `cluster-providers/{clusterProvider}`
pub static PROVIDER: DocumentKind =
    DocumentKind::of::<ProviderSpec>("cluster-provider", "ClusterProvider", "cluster-providers", &["clusterProvider"])
        .put(Put::Created201)
        .echo(Echo::IfSent);
