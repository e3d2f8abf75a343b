//! Key-value pairs of a cluster. Stored for users; Drover does not read them.

use std::collections::BTreeMap;

use drover_resources::{DocumentKind, Invalid, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::cluster::CLUSTER;

/// Spec of a kv-pair document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KvPairSpec {
    /// Each pair is a map with one key, as in EMCO. Values have at most 128 characters.
    pub kv: Vec<BTreeMap<String, String>>,
}

impl Spec for KvPairSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let long = self.kv.iter().flatten().filter(|(_, value)| value.chars().count() > 128);
        Invalid::unless_empty(long.map(|(key, _)| format!("spec.kv: the value of {key} is longer than 128 characters")).collect())
    }
}

/// `…/clusters/{cluster}/kv-pairs/{clusterKv}`
pub static KV_PAIR: DocumentKind = DocumentKind::of::<KvPairSpec>("cluster-kv-pair", "ClusterKvPair", "kv-pairs", &["clusterKv"])
    .below(&CLUSTER)
    .sealed(&[&["kv"]])
    .put(Put::Created201)
    .own_get()
    .tag("clusters");
