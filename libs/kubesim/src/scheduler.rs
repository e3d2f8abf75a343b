//! Binds pods to nodes: requests against allocatable, taints, node selector, required node affinity, one pass over all
//! waiting pods by priority and age whenever room may have appeared. Preferred pod affinity counts between nodes (no other topology).
//!
//! Ignored: required pod affinity, anti-affinity, topology spread, volumes, ports, extended resources, preemption.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::key::Key;
use crate::object::{self, list, map, number, text};
use crate::pods::{Room, requests};
use crate::selectors::Labels;
use crate::state::ClusterState;

/// Whether waiting pods may find a node after this change.
pub fn concerned(key: &Key, old: Option<&Value>, new: Option<&Value>) -> bool {
    match &*key.resource {
        "pods" => match (old, new) {
            (None, Some(pod)) => text(pod, "/spec/nodeName").is_empty(),
            (Some(_), None) => true,
            (Some(old), Some(new)) => {
                object::pod_finished(new) != object::pod_finished(old)
                    || new["spec"] != old["spec"] && text(new, "/spec/nodeName").is_empty()
            }
            (None, None) => false,
        },
        "nodes" => match (old, new) {
            (Some(old), Some(new)) => {
                old["spec"] != new["spec"]
                    || old["metadata"]["labels"] != new["metadata"]["labels"]
                    || old.pointer("/status/allocatable") != new.pointer("/status/allocatable")
            }
            _ => true,
        },
        _ => false,
    }
}

struct Node<'a> {
    object: &'a Value,
    free: Room,
    size: Room,
}

/// One pass over all waiting pods.
pub fn run(state: &mut ClusterState) {
    let mut waiting: Vec<Key> = state.tenants.waiting.iter().cloned().collect();
    if waiting.is_empty() {
        return;
    }
    let taken = &state.tenants.taken;
    let nodes: Vec<_> = state.store.list(&"nodes".into(), "").map(|(_, node)| node).collect();
    let mut nodes: Vec<Node<'_>> = nodes
        .iter()
        .map(|node| {
            let size = Room::of(&node["status"]["allocatable"]);
            let mut free = size;
            free.sub(taken.get(object::name(node)).copied().unwrap_or_default());
            Node { object: node, free, size }
        })
        .collect();
    waiting.sort_by_cached_key(|key| {
        let pod = state.store.get(key);
        let priority = pod.as_ref().and_then(|pod| number(pod, "/spec/priority")).unwrap_or(0);
        (-priority, pod.map(|pod| text(&pod, "/metadata/creationTimestamp").to_string()), key.clone())
    });
    for key in waiting {
        if let Some(pod) = state.store.get(&key) {
            place(state, &key, &pod, &mut nodes);
        }
    }
}

fn place(state: &mut ClusterState, key: &Key, pod: &Value, nodes: &mut [Node<'_>]) {
    let wanted = requests(pod);
    let mut refused: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut best: Option<(usize, i128)> = None;
    let liked = liked(state, key, pod);
    let most = liked.values().copied().max().unwrap_or(0).max(1);
    for (at, node) in nodes.iter().enumerate() {
        match why_not(pod, node, wanted) {
            Some(why) => *refused.entry(why).or_default() += 1,
            // Least allocated, like the real scheduler: per mille of cpu and memory that stay free.
            None => {
                let share = |free: i128, size: i128| if size > 0 { free * 1000 / size } else { 0 };
                let score = share(node.free.cpu - wanted.cpu, node.size.cpu) + share(node.free.memory - wanted.memory, node.size.memory);
                // The real scheduler weighs pod affinity, relative to the best node, twice as much as free resources.
                let score = score + 4000 * liked.get(object::name(node.object)).copied().unwrap_or(0) / most;
                if best.is_none_or(|(_, other)| score > other) {
                    best = Some((at, score));
                }
            }
        }
    }
    let now = state.clock.stamp();
    let mut new = pod.clone();
    let condition = match best {
        Some((at, _)) => {
            nodes[at].free.sub(wanted);
            new["spec"]["nodeName"] = json!(object::name(nodes[at].object));
            json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null})
        }
        None => {
            let reasons: Vec<String> = refused.iter().map(|(why, count)| format!("{count} {why}")).collect();
            let message = if nodes.is_empty() {
                "no nodes available to schedule pods".to_string()
            } else {
                format!("0/{} nodes are available: {}.", nodes.len(), reasons.join(", "))
            };
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message, "lastProbeTime": null})
        }
    };
    let mut conditions = list(&new, "/status/conditions").to_vec();
    object::set_condition(&mut conditions, condition, &now, false);
    new["status"]["conditions"] = conditions.into();
    if new != *pod {
        state.put(key.clone(), new);
    }
}

/// The score that a pod with preferred pod affinity gains on each node: the weights of its own terms that pods there meet, and of their
/// terms that it meets. Empty for pods without preferences, so that not every pod has to be read for them.
fn liked(state: &ClusterState, key: &Key, pod: &Value) -> BTreeMap<String, i128> {
    let mut liked = BTreeMap::new();
    if list(pod, PREFERRED).is_empty() {
        return liked;
    }
    for (_, other) in state.store.list(&"pods".into(), &key.namespace) {
        let node = text(&other, "/spec/nodeName");
        if !node.is_empty() && !object::pod_finished(&other) {
            *liked.entry(node.to_owned()).or_default() += likes(pod, &other) + likes(&other, pod);
        }
    }
    liked
}

const PREFERRED: &str = "/spec/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution";

/// The sum of the weights of a pod's terms that another pod meets.
fn likes(pod: &Value, other: &Value) -> i128 {
    let terms = list(pod, PREFERRED).iter().filter(|term| text(term, "/podAffinityTerm/topologyKey") == "kubernetes.io/hostname");
    let met =
        terms.filter(|term| term.pointer("/podAffinityTerm/labelSelector").is_some_and(|selector| Labels::of(selector).matches(other)));
    met.map(|term| i128::from(number(term, "/weight").unwrap_or(0))).sum()
}

fn why_not(pod: &Value, node: &Node<'_>, wanted: Room) -> Option<&'static str> {
    if node.object.pointer("/spec/unschedulable").is_some_and(|u| u == true) {
        return Some("node(s) were unschedulable");
    }
    if !tolerates(pod, node.object) {
        return Some("node(s) had untolerated taint(s)");
    }
    if !selected(pod, node.object) {
        return Some("node(s) didn't match Pod's node affinity/selector");
    }
    match node.free {
        free if wanted.pods > free.pods => Some("Too many pods"),
        free if wanted.cpu > free.cpu && wanted.cpu > 0 => Some("Insufficient cpu"),
        free if wanted.memory > free.memory && wanted.memory > 0 => Some("Insufficient memory"),
        _ => None,
    }
}

/// Whether the pod tolerates every taint of the node that would keep it away.
pub fn tolerates(pod: &Value, node: &Value) -> bool {
    list(node, "/spec/taints").iter().filter(|taint| taint["effect"] != "PreferNoSchedule").all(|taint| {
        list(pod, "/spec/tolerations").iter().any(|toleration| {
            let key = text(toleration, "/key");
            let exists = toleration["operator"] == "Exists";
            (key.is_empty() && exists || key == text(taint, "/key"))
                && (exists || text(toleration, "/value") == text(taint, "/value"))
                && matches!(text(toleration, "/effect"), "" | "NoSchedule" | "NoExecute")
                && (text(toleration, "/effect").is_empty() || toleration["effect"] == taint["effect"])
        })
    })
}

/// Whether the node matches the pod's node selector and required node affinity.
pub fn selected(pod: &Value, node: &Value) -> bool {
    let labels_match = map(pod, "/spec/nodeSelector")
        .into_iter()
        .flatten()
        .all(|(key, value)| object::label(node, key).is_some_and(|have| *value == *have));
    let terms = list(pod, "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
    labels_match && (terms.is_empty() || terms.iter().any(|term| term_matches(term, node)))
}

fn term_matches(term: &Value, node: &Value) -> bool {
    let (expressions, fields) = (list(term, "/matchExpressions"), list(term, "/matchFields"));
    let (numeric, plain): (Vec<_>, Vec<_>) = expressions.iter().cloned().partition(|e| matches!(text(e, "/operator"), "Gt" | "Lt"));
    let numbers_match = numeric.iter().all(|e| {
        let have = object::label(node, text(e, "/key")).and_then(|v| v.parse::<i64>().ok());
        let want = text(e, "/values/0").parse::<i64>().ok();
        have.zip(want).is_some_and(|(have, want)| if e["operator"] == "Gt" { have > want } else { have < want })
    });
    let fields_match = fields.iter().all(|e| {
        let listed = list(e, "/values").iter().any(|v| v == object::name(node));
        text(e, "/key") == "metadata.name" && listed == (e["operator"] == "In")
    });
    // A term without any expression matches nothing.
    !(expressions.is_empty() && fields.is_empty()) && numbers_match && fields_match && Labels::of_expressions(&plain).matches(node)
}
