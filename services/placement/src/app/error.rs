//! Errors of the ledger, and their conversion to problem documents.

use std::sync::Arc;

use drover_scheduling::Difference;
use drover_service::{Problem, codes};
use drover_store::StoreError;

/// Why the ledger refused or failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LedgerError {
    /// The list of members has not been received since the start.
    #[error("placement has not received the list of clusters yet; try again")]
    MembersUnknown,
    /// The capacity of a requested member has not been received yet, or not recently; with the reasons.
    #[error("the capacity of some clusters is not known at the moment; try again")]
    RoomUnknown(Vec<String>),
    /// The ledger differs from what a transaction assumes; with every difference.
    #[error("the ledger differs from what the transaction assumes; nothing was written")]
    Conflict(Vec<Difference>),
    /// The transaction contradicts itself, which is a bug of the service that sent it; with every contradiction.
    #[error("the transaction is invalid because of a bug in Drover; please report it with the reasons")]
    Invalid(Vec<Difference>),
    /// Nothing has that id or name.
    #[error("{0}")]
    NotFound(String),
    /// Other processes moved the head before every attempt to commit.
    #[error("the ledger is too busy: other processes committed first; try again")]
    Busy,
    /// The service is shutting down.
    #[error("placement is shutting down")]
    Stopped,
    /// The log cannot be written or read.
    #[error("the ledger's log cannot be read or written")]
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
            LedgerError::Conflict(differences) => codes::LEDGER_CONFLICT.problem(text).reasons(reasons(differences)),
            LedgerError::Invalid(differences) => codes::INVALID.problem(text).reasons(reasons(differences)),
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

fn reasons(differences: Vec<Difference>) -> impl Iterator<Item = String> {
    differences.into_iter().map(|difference| format!("{}: {}", difference.code, difference.detail))
}
