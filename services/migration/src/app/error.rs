//! Errors of plans, and their conversion into problem documents.

use drover_api::plans::PlanState;
use drover_resources::ResourceError;
use drover_service::{PeerError, Problem, codes};
use drover_store::StoreError;
use uuid::Uuid;

/// Why a plan could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The copy of the fleet is not recent enough, or the capacity of clusters is still unknown.
    #[error("{0}")]
    FleetBehind(String),
    /// There is no such plan.
    #[error("There is no plan {0}")]
    NotFound(Uuid),
    /// The plan is accepted, discarded or infeasible.
    #[error("The plan is {0:?}, not proposed")]
    NotProposed(PlanState),
    /// The plan is out of date, with the reasons: the owner of a victim no longer agrees to its move.
    #[error("The plan is out of date")]
    WorldChanged(Vec<String>),
    /// The deployment intent group is placed already.
    #[error("{0}")]
    WrongState(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// There is no such cluster.
    #[error("There is no cluster {0}")]
    UnknownCluster(String),
    /// There is no such policy.
    #[error("{0}")]
    UnknownPolicy(String),
    /// Another service refused the request or is unavailable.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Documents could not be read.
    #[error(transparent)]
    Documents(#[from] ResourceError),
    /// A bug: planning panicked, or its input cannot be serialised.
    #[error("planning failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl PlanError {
    /// An internal error.
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
            // The user named a document of orchestrator, so its refusal is passed on.
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
