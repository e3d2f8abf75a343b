//! Adds preferred pod affinity between the apps of a call group to their manifests, if the user allows it. Pure.
//!
//! They are only preferences: a pod also starts without its peers. Affinity that the manifests already have is kept. Peers are
//! found by Drover's label on their pods, in the same namespace of the same member; on another member a term has no effect.

use drover_members::labels;
use serde_json::{Value, json};

/// The apps that an app's pods prefer on their node, each with a weight from 1 to 100.
pub type PreferredPeers = Vec<(String, u32)>;

/// Adds the terms to every workload except DaemonSets, whose pods run on every node.
pub fn nodes(objects: &mut [Value], peers: &PreferredPeers) {
    for object in objects {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let pod = match kind {
            "Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController" | "Job" => "/spec/template/spec",
            "CronJob" => "/spec/jobTemplate/spec/template/spec",
            "Pod" => "/spec",
            _ => continue,
        };
        let Some(pod) = object.pointer_mut(pod).filter(|pod| pod.is_object()) else { continue };
        let terms = peers.iter().map(|(app, weight)| {
            json!({"weight": weight, "podAffinityTerm": {
                "labelSelector": {"matchLabels": {(labels::APP): app}}, "topologyKey": "kubernetes.io/hostname",
            }})
        });
        let affinity = &mut field(field(pod, "affinity"), "podAffinity")["preferredDuringSchedulingIgnoredDuringExecution"];
        match affinity.as_array_mut() {
            Some(own) => own.extend(terms),
            None => *affinity = terms.collect(),
        }
    }
}

/// A field that is a mapping; created if it does not exist.
fn field<'v>(of: &'v mut Value, name: &str) -> &'v mut Value {
    let field = &mut of[name];
    if !field.is_object() {
        *field = json!({});
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_adds_terms_to_existing_affinity_and_skips_daemon_sets() {
        let own = json!({"weight": 7, "podAffinityTerm": {"topologyKey": "zone"}});
        let pod = json!({"containers": []});
        let affine = json!({"affinity": {
            "nodeAffinity": {"a": 1}, "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [own]},
        }});
        let mut objects = vec![
            json!({"kind": "Deployment", "spec": {"template": {"spec": pod}}}),
            json!({"kind": "StatefulSet", "spec": {"template": {"spec": affine}}}),
            json!({"kind": "DaemonSet", "spec": {"template": {"spec": pod}}}),
            json!({"kind": "Service", "spec": {}}),
        ];
        let before = objects.clone();
        nodes(&mut objects, &vec![("cart".to_owned(), 60)]);
        let terms = "/spec/template/spec/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution";
        let added = json!({"weight": 60, "podAffinityTerm": {
            "labelSelector": {"matchLabels": {"drover.io/app": "cart"}}, "topologyKey": "kubernetes.io/hostname",
        }});
        assert_eq!(objects[0].pointer(terms), Some(&json!([added])));
        assert_eq!(objects[1].pointer(terms), Some(&json!([own, added])));
        assert_eq!(objects[1].pointer("/spec/template/spec/affinity/nodeAffinity"), Some(&json!({"a": 1})));
        assert_eq!(objects[2..], before[2..]);
    }
}
