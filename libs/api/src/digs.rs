//! Deployment intent groups as other services read them (leaf reads on orchestrator).

use drover_scheduling::{AppRequest, DigRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// An approved deployment intent group: its apps with demands and placement terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DigTerms {
    /// Which.
    pub dig: DigRef,
    /// Lifecycle state (EMCO's words: `Approved`, `Instantiated`, …).
    pub state: String,
    /// Revision.
    pub revision: i64,
    /// Its apps.
    pub apps: Vec<AppRequest>,
}

/// A document found by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentRef {
    /// Its uuid.
    pub id: Uuid,
    /// Kind.
    pub kind: String,
    /// Path.
    pub path: String,
}

/// A deployment intent group that an operation works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DigHold {
    /// Its document's uuid.
    pub dig: Uuid,
    /// Its document's path.
    pub path: String,
    /// The operation to watch or cancel.
    pub operation: Uuid,
}

/// `GET /internal/holds`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DigHolds {
    /// All of them.
    pub items: Vec<DigHold>,
}
