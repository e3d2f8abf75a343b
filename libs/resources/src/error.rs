//! The errors of documents, with EMCO's texts, and their conversion to problem+json.

use drover_service::{Problem, codes};
use drover_store::StoreError;

use crate::kind::Invalid;

/// Why a document was not created, read, replaced or deleted.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    #[error("{title} {path} not found")]
    NotFound { title: &'static str, path: String },
    #[error("{title} already exists")]
    AlreadyExists { title: &'static str },
    #[error("Cannot perform requested operation. Parent resource not found: {path}")]
    ParentNotFound {
        /// The path of the parent.
        path: String,
    },
    /// There are documents below it.
    #[error("Cannot delete parent without deleting child references first")]
    HasChildren,
    /// Other documents refer to it.
    #[error("Cannot delete without deleting or updating referencing resources first")]
    HasReferences {
        /// The paths of some of them.
        paths: Vec<String>,
    },
    #[error("{field} refers to {path}, which does not exist")]
    ReferenceNotFound { field: &'static str, path: String },
    /// The name in the body is not the one in the path.
    #[error("Mismatched name in PUT request")]
    MismatchedName,
    /// `If-Match` names another version.
    #[error("the current version is {current}, not the one in If-Match")]
    Changed {
        /// The current ETag, or `none`.
        current: String,
    },
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A stored spec does not fit its type.
    #[error("the stored spec of {path} cannot be read")]
    Unreadable {
        path: String,
        #[source]
        source: serde_json::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for ResourceError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<ResourceError> for Problem {
    fn from(error: ResourceError) -> Self {
        let detail = error.to_string();
        match error {
            ResourceError::NotFound { .. } => codes::NOT_FOUND.problem(detail),
            ResourceError::AlreadyExists { .. } => codes::ALREADY_EXISTS.problem(detail),
            ResourceError::ParentNotFound { .. } => codes::PARENT_NOT_FOUND.problem(detail),
            ResourceError::HasChildren => codes::HAS_CHILDREN.problem(detail),
            ResourceError::HasReferences { paths } => codes::HAS_REFERENCES.problem(detail).reasons(paths),
            ResourceError::ReferenceNotFound { .. } => codes::REFERENCE_NOT_FOUND.problem(detail),
            ResourceError::MismatchedName => codes::MISMATCHED_NAME.problem(detail),
            ResourceError::Changed { .. } => codes::PRECONDITION_FAILED.problem(detail),
            ResourceError::Invalid(Invalid { code, reasons }) => code.problem(detail).reasons(reasons),
            ResourceError::Store(error) => error.into(),
            ResourceError::Unreadable { .. } => Problem::internal(error),
        }
    }
}
