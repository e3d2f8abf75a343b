//! The errors of use cases and their conversion to problem+json.

use drover_resources::ResourceError;
use drover_service::{PeerError, Problem, codes};
use drover_store::StoreError;
use uuid::Uuid;

use crate::demand::DemandError;
use crate::render::RenderError;
use crate::store::deployment::DeploymentState;
use crate::store::hold::Busy;

/// Why a use case failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The thing that was named does not exist.
    #[error("{what} not found")]
    NotFound { what: String },
    /// The verb is not possible in the state of the group.
    #[error("{verb} is not possible in state {state}; it is in {}", allowed.join(", "))]
    WrongState {
        /// What was requested, as used in the message.
        verb: &'static str,
        state: DeploymentState,
        /// States in which it is possible.
        allowed: &'static [&'static str],
    },
    /// Not possible at the moment, for the reason given.
    #[error("{0}")]
    NotNow(String),
    /// Another operation is changing the group.
    #[error("operation {} is changing this deployment intent group", holder)]
    Busy { holder: Uuid },
    /// The documents contradict each other.
    #[error("{}", .0.join("; "))]
    Inconsistent(Vec<String>),
    /// Objects that the logical cloud does not allow.
    #[error("{}", .0.join("; "))]
    NotGranted(Vec<String>),
    /// An app cannot be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The demand of an app cannot be read from its manifests.
    #[error("{app}: {source}")]
    Demand { app: String, source: DemandError },
    /// The operation is past its pivot and cannot be cancelled.
    #[error("the operation is past its pivot and can no longer be undone")]
    PastThePivot,
    /// A controller did not answer, or its answer cannot be used.
    #[error("the controller {name} failed: {reason}")]
    Controller { name: String, reason: String },
    /// A controller refuses what was asked for.
    #[error("the controller {name} refuses: {}", reasons.join("; "))]
    Refused { name: String, reasons: Vec<String> },
    /// Not implemented in this version.
    #[error("{0} comes with a later version")]
    NotYet(&'static str),
    /// Reading or writing a document failed.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// Another service is unavailable or refused the request.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A query failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Spans of too many composite apps are being counted.
    #[error("spans of too many composite apps arrive; measure fewer at a time")]
    TooManyMeasured,
    /// A defect in Drover.
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
            Error::NotGranted(reasons) => codes::NOT_GRANTED.problem(detail).reasons(reasons),
            Error::Render(RenderError::Unavailable { .. }) => codes::HELM_UNAVAILABLE.problem(detail),
            Error::Render(RenderError::TooComplex { .. }) => codes::TOO_COMPLEX.problem(detail),
            Error::Render(RenderError::Archive { .. } | RenderError::Manifest { .. } | RenderError::Helm { .. }) | Error::Demand { .. } => {
                codes::RENDER_FAILED.problem(detail)
            }
            Error::PastThePivot => codes::PAST_THE_PIVOT.problem(detail),
            Error::Controller { .. } => codes::CONTROLLER_FAILED.problem(detail),
            Error::Refused { reasons, .. } => codes::CONTROLLER_REFUSED.problem(detail).reasons(reasons),
            Error::NotYet(_) => codes::NOT_YET.problem(detail),
            Error::Resource(error) => error.into(),
            Error::Peer(error) => error.into(),
            Error::Store(error) => error.into(),
            Error::TooManyMeasured => codes::BUSY_SERVER.problem(detail),
            Error::Internal(detail) => Problem::internal(detail),
        }
    }
}
