//! How a stored object is addressed.

use std::sync::Arc;

/// Where an object is kept. `namespace` is empty for kinds without one.
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
