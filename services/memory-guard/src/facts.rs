//! What is known of a pod, for the verdict whether it may be touched: from the runtime alone, or from the API server where there is one.
//!
//! The runtime knows what the kubelet told it: labels, annotations, the place in the cgroup tree. That is enough to refuse safely, and to
//! allow Jobs and pods whose owner says so.

use std::collections::BTreeMap;

use drover_memguard::{Facts, Qos};

use crate::runtime::{Inspected, Sandbox};

/// Mounting one of these makes a pod part of the node's own plumbing.
const PLUMBING: [&str; 6] = [
    "/var/lib/kubelet/plugins",
    "/var/lib/kubelet/plugins_registry",
    "/var/lib/kubelet/device-plugins",
    "/etc/cni",
    "/opt/cni",
    "/var/run/nri",
];

/// Facts from the runtime alone.
pub fn from_runtime(sandbox: &Sandbox, container: &Inspected) -> Facts {
    let labels: BTreeMap<String, String> = sandbox.labels.clone().into_iter().collect();
    let annotations: BTreeMap<String, String> = sandbox.annotations.clone().into_iter().collect();
    // Set by the Job and DaemonSet controllers themselves.
    let owner_kind = if labels.contains_key("batch.kubernetes.io/controller-uid") {
        Some("Job")
    } else if labels.contains_key("pod-template-generation") {
        Some("DaemonSet")
    } else if labels.contains_key("statefulset.kubernetes.io/pod-name") {
        Some("StatefulSet")
    } else {
        None
    };
    Facts {
        namespace: sandbox.namespace.clone(),
        owner_kind: owner_kind.map(str::to_owned),
        qos: qos(&container.cgroups_path),
        is_static: annotations.get("kubernetes.io/config.source").is_some_and(|source| source != "api"),
        privileged: container.privileged,
        node_plugin: container.host_paths.iter().any(|path| plumbing(path)),
        labels,
        annotations,
        // CPUs of their own have only Guaranteed pods, which are refused anyway. Priority class, Leases and probes only the API server knows.
        ..Facts::default()
    }
}

/// Whether a mounted path belongs to the node's plumbing.
pub fn plumbing(path: &str) -> bool {
    PLUMBING.iter().any(|own| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Quality of service from the place that the kubelet gives a pod: `kubepods/burstable/pod…`, `kubepods/pod…` for Guaranteed;
/// with systemd `kubepods-burstable-pod….slice`.
pub fn qos(cgroups_path: &str) -> Option<Qos> {
    let parts: Vec<&str> = cgroups_path.split(['/', ':']).collect();
    let has = |class: &str| parts.iter().any(|part| *part == class || part.starts_with(&format!("kubepods-{class}")));
    if has("burstable") {
        Some(Qos::Burstable)
    } else if has("besteffort") {
        Some(Qos::BestEffort)
    } else if cgroups_path.contains("kubepods") {
        Some(Qos::Guaranteed)
    } else {
        None
    }
}

/// Path of a cgroup from `cgroupsPath`: as it is, or in systemd's `slice:prefix:name` form.
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
    fn quality_of_service_is_read_off_the_place() {
        assert_eq!(qos("/kubepods/burstable/pod1/c"), Some(Qos::Burstable));
        assert_eq!(qos("/part/kubepods/besteffort/pod1/c"), Some(Qos::BestEffort));
        assert_eq!(qos("/kubepods/pod1/c"), Some(Qos::Guaranteed));
        assert_eq!(qos("kubepods-burstable-pod1.slice:cri-containerd:c"), Some(Qos::Burstable));
        assert_eq!(qos("kubepods-pod1.slice:cri-containerd:c"), Some(Qos::Guaranteed));
        assert_eq!(qos("/system.slice/x.service"), None);
    }

    #[test]
    fn systemd_paths_are_unfolded() {
        let path = cgroup_path("kubepods-burstable-pod1.slice:cri-containerd:abc");
        assert_eq!(path, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-abc.scope");
        assert_eq!(cgroup_path("/kubepods/burstable/pod1/abc"), "/kubepods/burstable/pod1/abc");
    }

    #[test]
    fn plumbing_is_a_whole_path() {
        assert!(plumbing("/etc/cni/net.d"));
        assert!(plumbing("/var/lib/kubelet/plugins"));
        assert!(!plumbing("/var/lib/kubelet/pods/1/volumes"));
        assert!(!plumbing("/etc/cnimon"));
    }

    #[test]
    fn a_job_is_known_by_its_controllers_label() {
        let labels = [("batch.kubernetes.io/controller-uid".to_owned(), "1".to_owned())].into();
        let sandbox = Sandbox { namespace: "batch".into(), labels, ..Sandbox::default() };
        let container = Inspected { cgroups_path: "/kubepods/burstable/pod1/c".into(), ..Inspected::default() };
        assert_eq!(from_runtime(&sandbox, &container).owner_kind.as_deref(), Some("Job"));
        let mine = Sandbox { annotations: [("kubernetes.io/config.source".to_owned(), "file".to_owned())].into(), ..sandbox };
        assert!(from_runtime(&mine, &container).is_static);
    }
}
