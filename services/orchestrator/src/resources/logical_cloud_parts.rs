//! What a logical cloud has besides its clusters: permissions of its user, quotas, and key-value pairs.

use std::collections::BTreeMap;

use drover_resources::{DocumentKind, Invalid, Put, Spec, is_dns_label};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::LOGICAL_CLOUD;

/// What the user of a logical cloud may do: the rule of a Role, or of a ClusterRole if the namespace is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UserPermissionSpec {
    /// Namespace; empty: everywhere in the cluster.
    #[serde(default)]
    pub namespace: String,
    #[serde(default, rename = "apiGroups", alias = "apigroups")]
    pub api_groups: Vec<String>,
    #[serde(default)]
    pub resources: Vec<String>,
    #[serde(default)]
    pub verbs: Vec<String>,
}

impl Spec for UserPermissionSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let empty = [("apiGroups", &self.api_groups), ("resources", &self.resources), ("verbs", &self.verbs)];
        let mut reasons: Vec<String> =
            empty.into_iter().filter(|(_, list)| list.is_empty()).map(|(field, _)| format!("spec.{field} is empty")).collect();
        if !self.namespace.is_empty() && !is_dns_label(&self.namespace) {
            reasons.push(format!("spec.namespace {:?} is not a DNS label", self.namespace));
        }
        Invalid::unless_empty(reasons)
    }
}

/// Permissions of the user of a logical cloud.
pub static USER_PERMISSION: DocumentKind =
    DocumentKind::of::<UserPermissionSpec>("user-permission", "UserPermission", "user-permissions", &["userPermission"])
        .below(&LOGICAL_CLOUD)
        .put(Put::None);

/// `spec.hard` of a ResourceQuota: `limits.cpu: "400"`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct ClusterQuotaSpec(pub BTreeMap<String, String>);

impl Spec for ClusterQuotaSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let broken =
            self.0.iter().filter(|(key, value)| key.is_empty() || value.len() > 128 || drover_quantity::thousandths(value).is_err());
        Invalid::unless_empty(broken.map(|(key, _)| format!("spec[{key:?}] must be a quantity of at most 128 characters")).collect())
    }
}

/// Quotas of a logical cloud.
pub static CLUSTER_QUOTA: DocumentKind =
    DocumentKind::of::<ClusterQuotaSpec>("cluster-quota", "ClusterQuota", "cluster-quotas", &["clusterQuota"])
        .below(&LOGICAL_CLOUD)
        .put(Put::None);

/// Key-value pairs, which Drover stores for users and does not read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogicalCloudKvSpec {
    /// Each pair is a map with one key, as in EMCO. Values have at most 128 characters.
    pub kv: Vec<BTreeMap<String, String>>,
}

impl Spec for LogicalCloudKvSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let long = self.kv.iter().flatten().filter(|(_, value)| value.chars().count() > 128);
        Invalid::unless_empty(long.map(|(key, _)| format!("spec.kv: the value of {key} is longer than 128 characters")).collect())
    }
}

/// Key-value pairs of a logical cloud.
pub static LOGICAL_CLOUD_KV: DocumentKind =
    DocumentKind::of::<LogicalCloudKvSpec>("logical-cloud-kv-pair", "LogicalCloudKv", "kv-pairs", &["logicalCloudKv"])
        .below(&LOGICAL_CLOUD)
        .sealed(&[&["kv"]])
        .put(Put::None)
        .tag("logical-clouds");
