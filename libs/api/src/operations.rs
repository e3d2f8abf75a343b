//! Operations: durable work that a user can watch and cancel (orchestrator).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// An operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Id.
    pub id: Uuid,
    /// `instantiate`, `terminate`, `update`, `relocate`, …
    pub kind: String,
    /// What it works on, for people: `project/app/version/group` or `drain provider+cluster`.
    pub subject: String,
    /// State.
    pub state: OperationState,
    /// What happens now, or how it ended, for people.
    pub message: String,
    /// Code of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Reasons of the failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Its steps so far.
    pub steps: Vec<OperationStep>,
    /// Operations it started.
    #[serde(default)]
    pub children: Vec<Uuid>,
    /// The one that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Uuid>,
    /// Plan it carries out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Uuid>,
    /// Moves it makes, with their stage; those of operations that it started included, so that one call shows all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveView>,
    /// Bindings left on members out of reach (found and removed when they come back).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leftovers: Vec<String>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
}

/// State of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// Runs or waits.
    Running,
    /// Takes back what it did.
    Undoing,
    /// Done.
    Succeeded,
    /// Ended without success; what it had done is undone (before the pivot) or stands (after it), as its message says.
    Failed,
    /// Ended by a cancel; undone.
    Cancelled,
    /// Written by another version of Drover; nobody here dares to go on with it.
    Refused,
}

/// A step of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationStep {
    /// Name.
    pub name: String,
    /// `do` or `undo`.
    pub direction: String,
    /// Attempt, from 1.
    pub attempt: i32,
    /// RFC 3339.
    pub started_at: String,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// What went wrong in this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One move, live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MoveView {
    /// `compositeApp/app`.
    pub app: String,
    /// From.
    pub from: String,
    /// To.
    pub to: String,
    /// `claimed`, `starting`, `ready`, `cut_over`, `removing`, `done`, `undone`, `failed`.
    pub stage: String,
    /// Seconds since it began (until its end).
    pub seconds: f64,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Operations, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationList {
    /// The operations.
    pub items: Vec<Operation>,
}
