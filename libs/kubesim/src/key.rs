//! How a stored object is addressed.

use std::sync::Arc;

/// The address of an object. `namespace` is empty for kinds that are not namespaced.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// `plural.group`.
    pub resource: Arc<str>,
    /// Its namespace, or "".
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl Key {
    /// The key of an object.
    pub fn new(resource: &Arc<str>, namespace: &str, name: &str) -> Self {
        Self { resource: resource.clone(), namespace: namespace.into(), name: name.into() }
    }
}
