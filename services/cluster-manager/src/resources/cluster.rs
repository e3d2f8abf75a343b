//! Clusters: the members. The kubeconfig of a cluster is vetted, sealed and never returned to users.

use drover_members::kubeconfig::vet;
use drover_resources::{DocumentKind, File, Invalid, Keep, Put, Spec};
use drover_service::codes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::provider::PROVIDER;

/// Spec of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterSpec {
    /// How the cluster is reached without a kubeconfig. Accepted and stored; Drover does not act on it.
    #[serde(default, rename = "gitOps")]
    pub git_ops: GitOps,
    /// Drover cannot reach the cluster: its agent (`drover-link`) connects to Drover, and the cluster is reached through that connection and in
    /// no other way. Cannot be changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub link: bool,
}

/// EMCO's GitOps settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GitOps {
    /// `fluxcd`, `azureArcV2`, `anthos` or empty.
    #[serde(default, rename = "gitOpsType")]
    pub kind: String,
    /// Name of the sync object that says where the repository is.
    #[serde(default, rename = "gitOpsReferenceObject")]
    pub reference_object: String,
    /// Name of the sync object with the credentials.
    #[serde(default, rename = "gitOpsResourceObject")]
    pub resource_object: String,
}

impl Spec for ClusterSpec {}

/// `cluster-providers/{clusterProvider}/clusters/{cluster}`
pub static CLUSTER: DocumentKind =
    DocumentKind::of::<ClusterSpec>("cluster", "Cluster", "clusters", &["cluster"]).below(&PROVIDER).put(Put::Ok200).own_list().file(
        File {
            required: false,
            many: false,
            keep: Keep::Hook,
            max_bytes: 1 << 20,
            content_type: "application/yaml",
            check: check_kubeconfig,
        },
    );

fn check_kubeconfig(bytes: &[u8]) -> Result<(), Invalid> {
    let text = std::str::from_utf8(bytes).map_err(|_| Invalid::with(codes::KUBECONFIG_INVALID, "kubeconfig: not UTF-8 text"))?;
    vet(text).map(drop).map_err(|error| {
        let code = codes::find(error.code()).unwrap_or(codes::KUBECONFIG_INVALID);
        let text = error.to_string();
        Invalid::with(code, if text.starts_with("kubeconfig") { text } else { format!("kubeconfig: {text}") })
    })
}
