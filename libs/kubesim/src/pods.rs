//! What a pod asks of a node.

use serde_json::Value;

use crate::object::{list, map};
use crate::quantity;

/// Thousandths of cores, of bytes, and of pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    pub cpu: i128,
    pub memory: i128,
    pub pods: i128,
}

impl Room {
    /// Of an `allocatable` or `requests` map.
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

    fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory), pods: self.pods.max(other.pods) }
    }
}

/// Effective requests: containers together, or the largest init container, plus overhead; sidecars run beside both.
pub fn requests(pod: &Value) -> Room {
    let (mut running, mut init) = (Room::default(), Room::default());
    for container in list(pod, "/spec/containers") {
        running.add(Room::of(&container["resources"]["requests"]));
    }
    let mut sidecars = Room::default();
    for container in list(pod, "/spec/initContainers") {
        let mut own = Room::of(&container["resources"]["requests"]);
        if container["restartPolicy"] == "Always" {
            sidecars.add(own);
            running.add(own);
            own = Room::default();
        }
        own.add(sidecars);
        init = init.max(own);
    }
    let mut room = running.max(init);
    if map(pod, "/spec/overhead").is_some() {
        room.add(Room::of(&pod["spec"]["overhead"]));
    }
    room.pods = 1000;
    room
}
