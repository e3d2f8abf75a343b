//! What controllers answered, as it is stored with a revision.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a controller answered, as it is recorded with the revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ControllerAnswer {
    pub controller: String,
    /// `placement` or `action`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The intent that the group names for it.
    pub intent: String,
    /// Whether the answer was used; otherwise the controller failed, and its failure policy is `Ignore`.
    pub used: bool,
    /// Why it was not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub milliseconds: u64,
    /// What it said, a sentence each.
    pub said: Vec<String>,
}
