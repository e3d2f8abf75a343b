//! What can go wrong in the use cases, and its one conversion to problem+json.

use drover_resources::ResourceError;
use drover_service::{PeerError, Problem, codes};
use drover_store::StoreError;
use uuid::Uuid;

use crate::demand::DemandError;
use crate::render::RenderError;
use crate::store::deployment::DeploymentState;
use crate::store::hold::Busy;

/// Why a use case did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such thing.
    #[error("{what} not found")]
    NotFound {
        /// What.
        what: String,
    },
    /// Not from this state.
    #[error("{verb} is not possible in state {state}; it is in {}", allowed.join(", "))]
    WrongState {
        /// What was asked for.
        verb: &'static str,
        /// State now.
        state: DeploymentState,
        /// States it is possible in.
        allowed: &'static [&'static str],
    },
    /// Something else stands in the way of it.
    #[error("{0}")]
    NotNow(String),
    /// Another operation holds the group.
    #[error("operation {} works on this deployment intent group", holder)]
    Busy {
        /// It.
        holder: Uuid,
    },
    /// The documents do not make sense together.
    #[error("{}", .0.join("; "))]
    Inconsistent(Vec<String>),
    /// An app does not render.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// An app's pods cannot be read.
    #[error("{app}: {source}")]
    Demand {
        /// App.
        app: String,
        /// Why.
        source: DemandError,
    },
    /// The operation is past its pivot.
    #[error("the operation is past its pivot and only goes forward")]
    PastThePivot,
    /// Comes later.
    #[error("{0} comes with a later version")]
    NotYet(&'static str),
    /// Documents.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// Another service.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Spans of too many composite apps at once.
    #[error("spans of too many composite apps arrive; measure fewer at a time")]
    TooManyMeasured,
    /// A defect of ours.
    #[error("{0}")]
    Internal(String),
}

impl From<Busy> for Error {
    fn from(busy: Busy) -> Self {
        Self::Busy { holder: busy.holder }
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error {
            Error::NotFound { .. } => codes::NOT_FOUND.problem(detail),
            Error::WrongState { .. } | Error::NotNow(_) => codes::WRONG_STATE.problem(detail),
            Error::Busy { holder } => {
                codes::BUSY.problem(format!("{detail}; watch or cancel it")).instance(format!("/v2/operations/{holder}"))
            }
            Error::Inconsistent(reasons) => codes::INVALID.problem(detail).reasons(reasons),
            Error::Render(RenderError::Unavailable { .. }) => codes::HELM_UNAVAILABLE.problem(detail),
            Error::Render(RenderError::Archive { .. } | RenderError::Manifest { .. } | RenderError::Helm { .. }) | Error::Demand { .. } => {
                codes::RENDER_FAILED.problem(detail)
            }
            Error::PastThePivot => codes::PAST_THE_PIVOT.problem(detail),
            Error::NotYet(_) => codes::NOT_YET.problem(detail),
            Error::Resource(error) => error.into(),
            Error::Peer(error) => error.into(),
            Error::Store(error) => error.into(),
            Error::TooManyMeasured => codes::BUSY_SERVER.problem(detail),
            Error::Internal(detail) => Problem::internal(detail),
        }
    }
}
