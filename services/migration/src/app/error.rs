//! What can go wrong with a plan, without a word of HTTP but for the one conversion.

use drover_api::plans::PlanState;
use drover_resources::ResourceError;
use drover_service::{PeerError, Problem, codes};
use drover_store::StoreError;
use uuid::Uuid;

/// Why there is no plan document, or why it stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Just started, placement is far ahead, or clusters have not been heard of.
    #[error("{0}")]
    FleetBehind(String),
    /// No such plan.
    #[error("There is no plan {0}")]
    NotFound(Uuid),
    /// It is accepted, discarded or infeasible.
    #[error("The plan is {0:?}, not proposed")]
    NotProposed(PlanState),
    /// A victim's owner no longer wants it moved.
    #[error("The world has changed since the plan was made")]
    WorldChanged(Vec<String>),
    /// The deployment intent group is placed already.
    #[error("{0}")]
    WrongState(String),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// There is no such cluster.
    #[error("There is no cluster {0}")]
    UnknownCluster(String),
    /// There is no such policy.
    #[error("{0}")]
    UnknownPolicy(String),
    /// Another service said no, in its own words.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Documents could not be read.
    #[error(transparent)]
    Documents(#[from] ResourceError),
    /// A bug: planning panicked or its input cannot be written down.
    #[error("planning failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl PlanError {
    /// A failure of ours.
    pub fn internal(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Internal(error.into())
    }
}

impl From<PlanError> for Problem {
    fn from(error: PlanError) -> Self {
        let text = error.to_string();
        match error {
            PlanError::FleetBehind(_) => codes::CAPACITY_UNKNOWN.problem(text),
            PlanError::NotFound(_) | PlanError::UnknownPolicy(_) => codes::NOT_FOUND.problem(text),
            PlanError::NotProposed(_) => codes::PLAN_NOT_PROPOSED.problem(text),
            PlanError::WorldChanged(reasons) => codes::WORLD_CHANGED.problem(text).reasons(reasons),
            PlanError::WrongState(_) => codes::WRONG_STATE.problem(text),
            PlanError::Invalid(_) => codes::INVALID.problem(text),
            PlanError::UnknownCluster(_) => codes::UNKNOWN_CLUSTER.problem(text),
            // What the user named is orchestrator's: its answer about it is ours.
            PlanError::Peer(PeerError::Refused { status, problem, .. })
                if status.is_client_error() && codes::find(&problem.code).is_some() =>
            {
                let code = codes::find(&problem.code).unwrap_or(codes::INTERNAL);
                code.problem(problem.detail.clone()).reasons(problem.reasons.clone())
            }
            PlanError::Peer(error) => error.into(),
            PlanError::Store(error) => error.into(),
            PlanError::Documents(error) => error.into(),
            PlanError::Internal(source) => Problem::internal(source),
        }
    }
}
