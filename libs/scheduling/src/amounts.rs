//! Amounts of resources: what a pod asks for, what a node can give.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Amounts of resources. CPU in milli-cores, memory in bytes, `pods` in pods, everything else (`extra`, e.g.
/// `nvidia.com/gpu`, `ephemeral-storage`) in that resource's own unit.
///
/// Signed, because differences are amounts too: a node can be over-committed by pods that nobody placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Amounts {
    /// CPU in milli-cores.
    #[serde(default)]
    pub cpu: i64,
    /// Memory in bytes.
    #[serde(default)]
    pub memory: i64,
    /// Number of pods.
    #[serde(default)]
    pub pods: i64,
    /// Extended resources by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, i64>,
}

impl Amounts {
    /// CPU in milli-cores and memory in bytes of one pod.
    pub fn pod(cpu: i64, memory: i64) -> Self {
        Self { cpu, memory, pods: 1, extra: BTreeMap::new() }
    }

    /// Adds `n` times `other`.
    pub fn add(&mut self, other: &Self, n: i64) {
        self.cpu += other.cpu * n;
        self.memory += other.memory * n;
        self.pods += other.pods * n;
        for (name, amount) in &other.extra {
            *self.extra.entry(name.clone()).or_default() += amount * n;
        }
    }

    /// `self` minus `other`.
    pub fn minus(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.add(other, -1);
        left
    }

    /// Whether `need` fits into `self`. What is not asked for does not matter, even where it is over-committed,
    /// as in Kubernetes' own fit.
    pub fn fits(&self, need: &Self) -> bool {
        (need.cpu <= 0 || need.cpu <= self.cpu)
            && (need.memory <= 0 || need.memory <= self.memory)
            && (need.pods <= 0 || need.pods <= self.pods)
            && need.extra.iter().all(|(name, n)| *n <= 0 || *n <= self.extra.get(name).copied().unwrap_or(0))
    }
}
