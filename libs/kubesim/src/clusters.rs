//! The clusters of a simulator, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::cluster::Cluster;

/// The clusters of a simulator.
#[derive(Default)]
pub struct Clusters(RwLock<BTreeMap<String, Arc<Cluster>>>);

impl Clusters {
    pub fn get(&self, name: &str) -> Option<Arc<Cluster>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub fn insert(&self, name: &str, cluster: Arc<Cluster>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name.into(), cluster);
    }

    pub fn remove(&self, name: &str) -> Option<Arc<Cluster>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    pub fn names(&self) -> Vec<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}
