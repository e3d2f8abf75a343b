//! Deployment intent groups as other services read them from the orchestrator.

use drover_scheduling::{AppRequest, DigRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// An approved deployment intent group, with the demands and placement terms of its apps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DigTerms {
    pub dig: DigRef,
    /// Lifecycle state as in EMCO: `Approved`, `Instantiated`, …
    pub state: String,
    pub revision: i64,
    pub apps: Vec<AppRequest>,
}

/// A document that was found by its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentRef {
    pub id: Uuid,
    pub kind: String,
    pub path: String,
}

/// A deployment intent group that is held by an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DigHold {
    /// Id of the group's document.
    pub dig: Uuid,
    /// Path of the group's document.
    pub path: String,
    /// The operation that holds the group; users can watch or cancel it.
    pub operation: Uuid,
}

/// Answer of `GET /internal/holds`: all groups that are held by an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DigHolds {
    pub items: Vec<DigHold>,
}
