//! Derives from rendered manifests what an app needs of a member. Pure.
//!
//! Only built-in workloads are counted. Pods that an operator creates from a custom resource are counted later, when they are
//! observed. Invariant: an app that owns data or is tied to a node is never reported as movable.

mod pod;
mod scaled;
mod workload;

use std::collections::BTreeSet;

use drover_api::scheduling::{Demand, PodGroup, Reachability};
use drover_members::labels;
use drover_quantity::image_name;
use serde_json::Value;

pub use scaled::following;
pub use workload::DemandError;
use workload::Workload;

/// What the objects of one app need. `namespace` is that of objects that name none.
///
/// # Errors
/// A pod template cannot be read, or a request in it is not a quantity.
pub fn of(objects: &[Value], namespace: &str) -> Result<Demand, DemandError> {
    let mut demand = Demand::default();
    let mut images = BTreeSet::new();
    let mut claims = BTreeSet::new();
    let mut hooks = Vec::new();
    for object in objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        let own = Some(text("/metadata/namespace")).filter(|ns| !ns.is_empty()).unwrap_or(namespace);
        match (text("/apiVersion"), kind) {
            ("v1", "Service") => {
                let service = format!("{own}/{name}");
                let open = ways_in(object);
                if !open.is_empty() {
                    demand.open_services.insert(service.clone(), open);
                }
                demand.services.push(service);
            }
            ("v1", "PersistentVolumeClaim") if claims.insert(name.to_owned()) => {
                demand.volumes += 1;
                demand.immovable.push(format!("volume: it owns the volume claim {name}"));
            }
            ("v1", "PersistentVolume") => demand.immovable.push(format!("volume: it owns the volume {name}")),
            _ => {}
        }
        if let Some(workload) = Workload::of(object)? {
            workload.count_volumes(own, &mut demand, &mut claims);
            workload.add_immovable_reasons(&mut demand);
            let is_stateful = demand.stateful.iter().any(|pods| workload.name == format!("StatefulSet/{}", pods.set));
            demand.at_most_once |=
                !is_stateful && object.pointer("/metadata/annotations").is_some_and(|all| all[labels::AT_MOST_ONCE] == "true");
            images.extend(pod::images(&workload.pod).map(image_name));
            match object.pointer("/metadata/annotations").and_then(|annotations| annotations[labels::HOOK].as_str()) {
                None => demand.groups.push(workload.pods()),
                // Tests run when they are asked for, in the room that there is then.
                Some(events) if events.split(',').all(|event| event == "test") => {}
                Some(_) => hooks.push(workload.pods()),
            }
        }
    }
    if demand.at_most_once && !demand.stateful.is_empty() {
        demand.immovable.push("volume: it has a workload that must not run twice beside pods with volumes".to_owned());
    }
    // Somebody else would change the number of pods while they move.
    for object in objects.iter().filter(|object| object["kind"] == "HorizontalPodAutoscaler") {
        let target = &object["spec"]["scaleTargetRef"];
        if let Some(pods) = demand.stateful.iter().find(|pods| target["kind"] == "StatefulSet" && target["name"] == pods.set.as_str()) {
            demand.immovable.push(format!("volume: StatefulSet/{} has volumes and is scaled by a HorizontalPodAutoscaler", pods.set));
        }
    }
    demand.groups.extend(largest(hooks));
    demand.images = images.into_iter().collect();
    demand.services.sort_unstable();
    Ok(demand)
}

/// The hooks for which there must be room. They run one after the other, so one that fits into the room of another needs none of its own.
fn largest(mut hooks: Vec<PodGroup>) -> Vec<PodGroup> {
    hooks.sort_by_key(|hook| std::cmp::Reverse((hook.requests.cpu, hook.requests.memory)));
    let mut room: Vec<PodGroup> = Vec::new();
    for hook in hooks {
        if !room.iter().any(|larger| covers(larger, &hook)) {
            room.push(hook);
        }
    }
    room
}

/// Whether the pods of a hook fit into the room of another one, on the same nodes.
fn covers(larger: &PodGroup, hook: &PodGroup) -> bool {
    let nodes = |group: &PodGroup| (group.node_selector.clone(), group.node_affinity.clone(), group.tolerations.clone());
    larger.requests.fits(&hook.requests) && larger.replicas >= hook.replicas && nodes(larger) == nodes(hook)
}

/// The ways by which a Service is reached from outside its member.
fn ways_in(service: &Value) -> Vec<Reachability> {
    let spec = &service["spec"];
    match spec["type"].as_str() {
        Some("NodePort") => vec![Reachability::NodePort],
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => vec![Reachability::LoadBalancer],
        Some("LoadBalancer") => vec![Reachability::NodePort, Reachability::LoadBalancer],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
