//! Operations: durable work that users can watch and cancel (orchestrator).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A workflow as users see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    pub id: Uuid,
    /// Kind of work: `instantiate`, `terminate`, `update`, `relocate`, …
    pub kind: String,
    /// What the operation works on, for people: `project/compositeApp/version/group`, or `drain provider+cluster`.
    pub subject: String,
    pub state: OperationState,
    /// What happens now or how the operation ended, for people.
    pub message: String,
    /// Stable code of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Each single reason of the failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The steps that were started so far.
    pub steps: Vec<OperationStep>,
    /// Operations that this one started.
    #[serde(default)]
    pub children: Vec<Uuid>,
    /// The operation that started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Uuid>,
    /// The plan that is carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Uuid>,
    /// All moves with their stages, including the moves of operations that this one started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveView>,
    /// What has changed since the dry run whose `basis` was sent with the verb.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_since_dry_run: Vec<String>,
    /// Copies that remain in clusters that cannot be reached. They are removed when the cluster can be reached again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leftovers: Vec<String>,
    /// Objects that stay in a cluster for good although their app is removed there, and why: a CustomResourceDefinition or a Namespace with
    /// which others would lose theirs, and volume claims that StatefulSets made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    /// Time in RFC 3339.
    pub created_at: String,
    /// Time in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
}

/// An operator's word that in a cluster nothing runs any more that the operation moves, although the cluster cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForceFence {
    /// The cluster, as `<provider>+<cluster>`.
    pub cluster: String,
    /// How the operator knows, for the record.
    pub reason: String,
}

/// State of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// It is running or waiting.
    Running,
    /// It failed or was cancelled, and its steps are being undone.
    Undoing,
    /// It ended with success.
    Succeeded,
    /// It ended without success. What it had done before the pivot is undone; what was done after the pivot remains. `message` says which.
    Failed,
    /// It was cancelled and undone.
    Cancelled,
    /// It was started by another version of Drover that this version cannot continue.
    Refused,
}

/// An attempt of a step of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationStep {
    pub name: String,
    /// Direction: `do` or `undo`.
    pub direction: String,
    /// Number of the attempt, counted from 1.
    pub attempt: i32,
    /// Time in RFC 3339.
    pub started_at: String,
    /// Time in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// Error of this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A move of an app from one cluster to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MoveView {
    /// The app, as `compositeApp/app`.
    pub app: String,
    /// The project of the app; empty in answers to those who do not see it.
    #[serde(default)]
    pub project: String,
    pub from: String,
    pub to: String,
    /// Stage: `claimed`, `starting`, `ready`, `cut_over`, `removing`, `done`, `undone` or `failed`.
    pub stage: String,
    /// Duration in seconds, so far or until its end.
    pub seconds: f64,
    /// Why the move failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Operations, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationList {
    pub items: Vec<Operation>,
}
