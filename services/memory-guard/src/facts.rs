//! What is known about a pod for the verdict whether it may be held: from the runtime alone, or from the API server where there is one.
//!
//! The runtime knows what the kubelet told it: labels, annotations, the place in the cgroup tree. That is enough to deny safely, and to
//! allow Jobs and pods whose owner consents.

use std::collections::BTreeMap;

use drover_memguard::{PodFacts, QosClass};

use crate::runtime::{InspectedContainer, Sandbox};

/// A pod that mounts one of these host paths serves the node.
const NODE_PATHS: [&str; 6] = [
    "/var/lib/kubelet/plugins",
    "/var/lib/kubelet/plugins_registry",
    "/var/lib/kubelet/device-plugins",
    "/etc/cni",
    "/opt/cni",
    "/var/run/nri",
];

/// The facts that the runtime alone can tell.
pub fn from_runtime(sandbox: &Sandbox, container: &InspectedContainer) -> PodFacts {
    let labels: BTreeMap<String, String> = sandbox.labels.clone().into_iter().collect();
    let annotations: BTreeMap<String, String> = sandbox.annotations.clone().into_iter().collect();
    // These labels are set by the controllers themselves.
    let owner_kind = if labels.contains_key("batch.kubernetes.io/controller-uid") {
        Some("Job")
    } else if labels.contains_key("pod-template-generation") {
        Some("DaemonSet")
    } else if labels.contains_key("statefulset.kubernetes.io/pod-name") {
        Some("StatefulSet")
    } else {
        None
    };
    PodFacts {
        namespace: sandbox.namespace.clone(),
        owner_kind: owner_kind.map(str::to_owned),
        qos: qos(&container.cgroups_path),
        is_static: annotations.get("kubernetes.io/config.source").is_some_and(|source| source != "api"),
        privileged: container.privileged,
        node_plugin: container.host_paths.iter().any(|path| serves_node(path)),
        labels,
        annotations,
        // Only Guaranteed pods have exclusive CPUs, and those are denied anyway. Priority class, Leases and probes are known to the API
        // server only.
        ..PodFacts::default()
    }
}

/// Whether a mounted path belongs to a driver or plugin of the node.
pub fn serves_node(path: &str) -> bool {
    NODE_PATHS.iter().any(|own| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Quality-of-service class from the cgroup in which the kubelet puts a pod: `kubepods/burstable/pod…`, or `kubepods/pod…` for
/// Guaranteed; with systemd `kubepods-burstable-pod….slice`.
pub fn qos(cgroups_path: &str) -> Option<QosClass> {
    let parts: Vec<&str> = cgroups_path.split(['/', ':']).collect();
    let has = |class: &str| parts.iter().any(|part| *part == class || part.starts_with(&format!("kubepods-{class}")));
    if has("burstable") {
        Some(QosClass::Burstable)
    } else if has("besteffort") {
        Some(QosClass::BestEffort)
    } else if cgroups_path.contains("kubepods") {
        Some(QosClass::Guaranteed)
    } else {
        None
    }
}

/// Path of a cgroup from `cgroupsPath`, which is a path or has systemd's form `slice:prefix:name`.
pub fn cgroup_path(cgroups_path: &str) -> String {
    let mut parts = cgroups_path.split(':');
    let (Some(slice), Some(prefix), Some(name), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return cgroups_path.to_owned();
    };
    // a-b-c.slice lies in a.slice/a-b.slice/a-b-c.slice
    let stem = slice.trim_end_matches(".slice");
    let mut path = String::new();
    for (at, _) in stem.match_indices('-').chain(std::iter::once((stem.len(), ""))) {
        path.push_str(&format!("/{}.slice", &stem[..at]));
    }
    format!("{path}/{prefix}-{name}.scope")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qos_is_read_from_the_cgroup_path() {
        assert_eq!(qos("/kubepods/burstable/pod1/c"), Some(QosClass::Burstable));
        assert_eq!(qos("/part/kubepods/besteffort/pod1/c"), Some(QosClass::BestEffort));
        assert_eq!(qos("/kubepods/pod1/c"), Some(QosClass::Guaranteed));
        assert_eq!(qos("kubepods-burstable-pod1.slice:cri-containerd:c"), Some(QosClass::Burstable));
        assert_eq!(qos("kubepods-pod1.slice:cri-containerd:c"), Some(QosClass::Guaranteed));
        assert_eq!(qos("/system.slice/x.service"), None);
    }

    #[test]
    fn cgroup_path_expands_systemd_slices() {
        let path = cgroup_path("kubepods-burstable-pod1.slice:cri-containerd:abc");
        assert_eq!(path, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-abc.scope");
        assert_eq!(cgroup_path("/kubepods/burstable/pod1/abc"), "/kubepods/burstable/pod1/abc");
    }

    #[test]
    fn serves_node_compares_whole_path_components() {
        assert!(serves_node("/etc/cni/net.d"));
        assert!(serves_node("/var/lib/kubelet/plugins"));
        assert!(!serves_node("/var/lib/kubelet/pods/1/volumes"));
        assert!(!serves_node("/etc/cnimon"));
    }

    #[test]
    fn from_runtime_recognises_a_job_by_its_label_and_a_static_pod_by_its_annotation() {
        let labels = [("batch.kubernetes.io/controller-uid".to_owned(), "1".to_owned())].into();
        let sandbox = Sandbox { namespace: "batch".into(), labels, ..Sandbox::default() };
        let container = InspectedContainer { cgroups_path: "/kubepods/burstable/pod1/c".into(), ..InspectedContainer::default() };
        assert_eq!(from_runtime(&sandbox, &container).owner_kind.as_deref(), Some("Job"));
        let mine = Sandbox { annotations: [("kubernetes.io/config.source".to_owned(), "file".to_owned())].into(), ..sandbox };
        assert!(from_runtime(&mine, &container).is_static);
    }
}
