//! Where a pod may run, and what ties it to a node. Its requests are counted by libs/quantity.

use drover_api::scheduling::{NodeRequirement, Operator, Toleration};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, PodSpec, Volume};

/// Tolerations of a pod.
pub fn tolerations(pod: &PodSpec) -> Vec<Toleration> {
    let toleration = |t: &k8s_openapi::api::core::v1::Toleration| Toleration {
        key: t.key.clone().unwrap_or_default(),
        exists: t.operator.as_deref() == Some("Exists"),
        value: t.value.clone().unwrap_or_default(),
        effect: t.effect.clone().unwrap_or_default(),
    };
    pod.tolerations.iter().flatten().map(toleration).collect()
}

/// Required node affinity: any of the terms, all requirements of a term. A term without requirements matches nothing and is
/// left out, as in Kubernetes; if there are only such terms, one that matches nothing is returned.
pub fn node_affinity(pod: &PodSpec) -> Vec<Vec<NodeRequirement>> {
    let Some(selector) = pod
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())
    else {
        return Vec::new();
    };
    let terms: Vec<Vec<NodeRequirement>> = selector
        .node_selector_terms
        .iter()
        .map(|term| {
            let labels = term.match_expressions.iter().flatten();
            let fields = term.match_fields.iter().flatten();
            labels.chain(fields).filter_map(requirement).collect()
        })
        .filter(|term: &Vec<NodeRequirement>| !term.is_empty())
        .collect();
    if terms.is_empty() {
        return vec![vec![NodeRequirement { key: String::new(), operator: Operator::In, values: Vec::new() }]];
    }
    terms
}

fn requirement(requirement: &NodeSelectorRequirement) -> Option<NodeRequirement> {
    let operator = match requirement.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        _ => return None,
    };
    Some(NodeRequirement { key: requirement.key.clone(), operator, values: requirement.values.clone().unwrap_or_default() })
}

/// Whether the pod names the node it must run on.
pub fn bound_to_node(pod: &PodSpec) -> bool {
    const HOSTNAME: &str = "kubernetes.io/hostname";
    let names_node = |r: &NodeRequirement| r.operator == Operator::In && (r.key == HOSTNAME || r.key == "metadata.name");
    let affinity = node_affinity(pod);
    pod.node_name.as_deref().is_some_and(|name| !name.is_empty())
        || pod.node_selector.as_ref().is_some_and(|selector| selector.contains_key(HOSTNAME))
        || (!affinity.is_empty() && affinity.iter().all(|term| term.iter().any(names_node)))
}

/// What a move does to the data of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeKind {
    /// Created anew with each pod: nothing is lost.
    Scratch,
    /// A directory of the node: the pod depends on that node.
    HostPath,
    /// Data that outlives the pod and would be left behind.
    Persistent,
}

/// Classifies a volume. A source that is not known to be scratch counts as persistent.
pub fn volume_kind(volume: &Volume) -> VolumeKind {
    let scratch = volume.empty_dir.is_some()
        || volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
        || volume.ephemeral.is_some()
        || volume.csi.is_some()
        || volume.image.is_some()
        || volume.git_repo.is_some();
    if volume.host_path.is_some() {
        VolumeKind::HostPath
    } else if scratch {
        VolumeKind::Scratch
    } else if *volume == (Volume { name: volume.name.clone(), ..Volume::default() }) {
        // A volume without a source is an emptyDir.
        VolumeKind::Scratch
    } else {
        VolumeKind::Persistent
    }
}

/// Images of a pod.
pub fn images(pod: &PodSpec) -> impl Iterator<Item = &str> {
    pod.init_containers.iter().flatten().chain(&pod.containers).filter_map(|container| container.image.as_deref())
}
