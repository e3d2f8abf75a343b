//! What a request names, and how it is to be carried out.

use std::sync::Arc;

use crate::error::ApiError;
use crate::key::Key;
use crate::kinds::ServedKind;

/// What a path names.
#[derive(Debug, Clone)]
pub struct Target {
    pub kind: Arc<ServedKind>,
    pub namespace: String,
    pub name: String,
    pub sub: String,
}

impl Target {
    /// The key of the object of this name in the kind and namespace of the path.
    pub fn key(&self, name: &str) -> Key {
        Key::new(&self.kind.resource, &self.namespace, name)
    }

    /// The error of a server that has no such object.
    pub fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.kind.resource, &self.name)
    }
}

/// The options of a write, from the query string.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub dry_run: bool,
    pub force: bool,
    pub manager: String,
    pub propagation: Option<String>,
    pub grace: Option<i64>,
}

/// The type of a patch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}
