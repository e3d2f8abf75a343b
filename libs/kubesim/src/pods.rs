//! What a pod requests of a node.

use drover_quantity::PodSpec;
use serde::Deserialize;
use serde_json::Value;

use crate::quantity;

/// Thousandths of cores, of bytes, and of pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    pub cpu: i128,
    pub memory: i128,
    pub pods: i128,
}

impl Room {
    /// The amounts of an `allocatable` or `requests` map.
    pub fn of(amounts: &Value) -> Self {
        Self { cpu: quantity::of(&amounts["cpu"]), memory: quantity::of(&amounts["memory"]), pods: quantity::of(&amounts["pods"]) }
    }

    pub fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
        self.pods += other.pods;
    }

    pub fn sub(&mut self, other: Self) {
        self.cpu -= other.cpu;
        self.memory -= other.memory;
        self.pods -= other.pods;
    }
}

/// Effective requests of a pod, computed like Drover's own (libs/quantity).
pub fn requests(pod: &Value) -> Room {
    let spec = PodSpec::deserialize(&pod["spec"]).unwrap_or_default();
    let requests = spec.requests().unwrap_or_default();
    Room { cpu: requests.thousandths("cpu"), memory: requests.thousandths("memory"), pods: 1000 }
}
