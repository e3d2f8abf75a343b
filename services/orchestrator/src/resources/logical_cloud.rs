//! Logical clouds: which clusters the apps of a project may use, and their namespace. Only level 0 (admin) is supported: nothing
//! has to be created in the clusters, so instantiating one takes effect immediately.

use std::collections::BTreeMap;

use drover_resources::{DocumentKind, Invalid, Spec, is_dns_label};
use drover_service::codes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PROJECT;

/// Namespace and level of a logical cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogicalCloudSpec {
    /// Namespace of objects that name none; empty: `default`.
    #[serde(default)]
    pub namespace: String,
    /// EMCO's labels; have no effect.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// Only `0` (admin) is supported.
    #[serde(default = "zero")]
    pub level: String,
    /// EMCO's user; has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<LogicalCloudUser>,
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
}

impl Spec for LogicalCloudSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        if !self.namespace.is_empty() && !is_dns_label(&self.namespace) {
            return Err(Invalid::with(codes::NAME_NOT_DNS, format!("spec.namespace {:?} is not a DNS label", self.namespace)));
        }
        match self.level.as_str() {
            "0" => Ok(()),
            "1" => Err(Invalid::with(codes::NOT_YET, "logical clouds of level 1 come with a later version; use level 0")),
            other => Err(Invalid::rule(format!("spec.level must be \"0\" or \"1\", not {other:?}"))),
        }
    }
}

/// Logical clouds.
pub static LOGICAL_CLOUD: DocumentKind =
    DocumentKind::of::<LogicalCloudSpec>("logical-cloud", "LogicalCloud", "logical-clouds", &["logicalCloud"]).below(&PROJECT);
