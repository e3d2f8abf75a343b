//! What can go wrong with documents, in EMCO's words, and its one conversion to problem+json.

use drover_service::{Problem, codes};
use drover_store::StoreError;

use crate::kind::Invalid;

/// Why a document was not made, read, replaced or deleted.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// There is none.
    #[error("{title} {path} not found")]
    NotFound {
        /// Kind's title.
        title: &'static str,
        /// Path asked for.
        path: String,
    },
    /// There is one already.
    #[error("{title} already exists")]
    AlreadyExists {
        /// Kind's title.
        title: &'static str,
    },
    /// Nothing above it.
    #[error("Cannot perform requested operation. Parent resource not found: {path}")]
    ParentNotFound {
        /// The parent's path.
        path: String,
    },
    /// Something below it.
    #[error("Cannot delete parent without deleting child references first")]
    HasChildren,
    /// Something refers to it.
    #[error("Cannot delete without deleting or updating referencing resources first")]
    HasReferences {
        /// Paths of those that do (some).
        paths: Vec<String>,
    },
    /// It refers to something that is not there.
    #[error("{field} refers to {path}, which does not exist")]
    ReferenceNotFound {
        /// Field.
        field: &'static str,
        /// Path.
        path: String,
    },
    /// The name in the body is not the path's.
    #[error("Mismatched name in PUT request")]
    MismatchedName,
    /// `If-Match` names another version.
    #[error("the current version is {current}, not the one in If-Match")]
    Changed {
        /// Current ETag.
        current: String,
    },
    /// A rule is broken.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A stored spec does not fit its type any more.
    #[error("the stored spec of {path} cannot be read")]
    Unreadable {
        /// Path.
        path: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The database.
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
