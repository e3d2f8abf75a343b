//! Logical clouds: which clusters the apps of a project may use, and their namespace. At level 0 (admin) nothing has to be created
//! in the clusters, so instantiating one takes effect immediately. At level 1 each cluster gets its namespace, quotas, roles and a user.

use std::collections::BTreeMap;

use drover_api::grants::Grants;
use drover_resources::{DocumentKind, Invalid, Spec, is_dns_label, is_name};
use drover_service::codes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PROJECT;

/// Namespace and level of a logical cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogicalCloudSpec {
    /// Namespace of objects that name none; empty: `default`, which is written here when the logical cloud is instantiated.
    #[serde(default)]
    pub namespace: String,
    /// EMCO's labels; have no effect.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// `0`: the clusters are used with the rights that Drover has; `1`: a namespace with quotas and a user is made in each cluster.
    #[serde(default = "zero")]
    pub level: String,
    /// What its apps may write besides namespaced objects in its namespace. Without it a cloud of level 0 in the namespace `default`
    /// (EMCO's admin cloud) may write everything, and every other cloud only into its own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Grants>,
    /// The account as which the objects of its apps are written and deleted in the clusters, so that the rules of the cluster for that account
    /// hold as well. Without it they are written as Drover.
    #[serde(default, rename = "actAs", skip_serializing_if = "Option::is_none")]
    pub act_as: Option<ActAs>,
    /// The user whom the permissions of a cloud of level 1 are for.
    #[serde(default)]
    pub user: LogicalCloudUser,
}

/// The account as which the apps of a logical cloud are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ActAs {
    /// Name of a ServiceAccount in the cloud's namespace; `drover cluster role --for` prints it with its rights.
    pub service_account: String,
}

/// EMCO's user of a logical cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogicalCloudUser {
    /// Name of the user.
    #[serde(default, rename = "userName", alias = "username")]
    pub user_name: String,
    /// Type of the user.
    #[serde(default, rename = "type")]
    pub kind: String,
}

fn zero() -> String {
    "0".to_owned()
}

impl LogicalCloudSpec {
    /// Namespace of objects that name none.
    pub fn namespace(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }

    /// Whether it is of level 0: nothing of its own is in the clusters.
    pub fn is_admin(&self) -> bool {
        self.level != "1"
    }

    /// The account as which its apps are written, as `namespace/name`. `None`: Drover's own.
    pub fn account(&self) -> Option<String> {
        self.act_as.as_ref().map(|account| format!("{}/{}", self.namespace(), account.service_account))
    }

    /// What its apps may write besides namespaced objects in its namespace. `None`: everything.
    pub fn grants(&self) -> Option<Grants> {
        let is_admin = self.level == "0" && self.namespace() == "default";
        let grants = self.grants.clone().unwrap_or_else(|| Grants { everything: is_admin, ..Grants::default() });
        (!grants.everything).then_some(grants)
    }
}

impl Spec for LogicalCloudSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        if !self.namespace.is_empty() && !is_dns_label(&self.namespace) {
            return Err(Invalid::with(codes::NAME_NOT_DNS, format!("spec.namespace {:?} is not a DNS label", self.namespace)));
        }
        if let Some(name) = self.grants.iter().flat_map(|grants| &grants.namespaces).find(|name| !is_dns_label(name)) {
            return Err(Invalid::with(codes::NAME_NOT_DNS, format!("spec.grants.namespaces: {name:?} is not a DNS label")));
        }
        if let Some(account) = self.act_as.as_ref().filter(|account| !is_dns_label(&account.service_account)) {
            let why = format!("spec.actAs.serviceAccount {:?} is not a DNS label", account.service_account);
            return Err(Invalid::with(codes::NAME_NOT_DNS, why));
        }
        match self.level.as_str() {
            "0" => Ok(()),
            "1" if self.namespace.is_empty() => {
                Err(Invalid::rule("spec.namespace is empty; a logical cloud of level 1 creates its namespace"))
            }
            "1" if self.namespace == "default" || self.namespace.starts_with("kube-") => Err(Invalid::rule(format!(
                "spec.namespace: {:?} belongs to Kubernetes; a logical cloud of level 1 has its own",
                self.namespace
            ))),
            "1" if !self.user.user_name.is_empty() && !is_name(&self.user.user_name) => {
                Err(Invalid::rule(format!("spec.user.userName: {:?} is not a name", self.user.user_name)))
            }
            "1" => Ok(()),
            other => Err(Invalid::rule(format!("spec.level must be \"0\" or \"1\", not {other:?}"))),
        }
    }
}

/// Logical clouds.
pub static LOGICAL_CLOUD: DocumentKind =
    DocumentKind::of::<LogicalCloudSpec>("logical-cloud", "LogicalCloud", "logical-clouds", &["logicalCloud"]).below(&PROJECT);
