//! What can go wrong with the ledger, without a word of HTTP but for the one conversion.

use std::sync::Arc;

use drover_scheduling::Difference;
use drover_service::{Problem, codes};
use drover_store::StoreError;

/// Why there is no answer, or why it is no.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LedgerError {
    /// Just started: it is not known yet which members there are.
    #[error("it is not known yet which members there are")]
    MembersUnknown,
    /// Room is wanted where nothing is known at the moment, though it may soon be.
    #[error("the room of clusters is not known at the moment")]
    RoomUnknown(Vec<String>),
    /// The ledger differs from what a transaction assumes.
    #[error("the ledger differs from what was assumed")]
    Conflict(Vec<Difference>),
    /// Nothing of that name.
    #[error("{0}")]
    NotFound(String),
    /// Other processes were always faster, or the queue is full.
    #[error("the ledger is too busy")]
    Busy,
    /// The service ends.
    #[error("placement is shutting down")]
    Stopped,
    /// The log cannot be written or read.
    #[error("the ledger's log failed")]
    Store(#[source] Arc<StoreError>),
}

impl From<StoreError> for LedgerError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        let text = error.to_string();
        match error {
            LedgerError::MembersUnknown => codes::CAPACITY_UNKNOWN.problem(text),
            LedgerError::RoomUnknown(reasons) => codes::CAPACITY_UNKNOWN.problem(text).reasons(reasons),
            LedgerError::Conflict(differences) => codes::LEDGER_CONFLICT
                .problem(text)
                .reasons(differences.into_iter().map(|difference| format!("{}: {}", difference.code, difference.detail))),
            LedgerError::NotFound(_) => codes::NOT_FOUND.problem(text),
            LedgerError::Busy | LedgerError::Stopped => codes::BUSY_SERVER.problem(text),
            LedgerError::Store(source) => match &*source {
                StoreError::Unavailable(_) | StoreError::Contended(_) => Problem::failed(codes::STORE_UNAVAILABLE, source),
                StoreError::Full(_) => Problem::failed(codes::STORE_FULL, source),
                _ => Problem::internal(source),
            },
        }
    }
}
