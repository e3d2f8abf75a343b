//! What every cluster serves, as far as charts ask for it, and helm does not know without asking a cluster. helm knows most groups and no kinds: a chart that asks for
//! `policy/v1/PodDisruptionBudget` falls back to a version that is gone.

/// Stable kinds, by group and version.
const KINDS: [(&str, &[&str]); 17] = [
    ("v1", &["ConfigMap", "Namespace", "PersistentVolume", "PersistentVolumeClaim", "Pod", "Secret", "Service", "ServiceAccount"]),
    ("admissionregistration.k8s.io/v1", &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]),
    ("apiextensions.k8s.io/v1", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io/v1", &["APIService"]),
    ("apps/v1", &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("autoscaling/v1", &["HorizontalPodAutoscaler"]),
    ("autoscaling/v2", &["HorizontalPodAutoscaler"]),
    ("batch/v1", &["CronJob", "Job"]),
    ("certificates.k8s.io/v1", &["CertificateSigningRequest"]),
    ("coordination.k8s.io/v1", &["Lease"]),
    ("discovery.k8s.io/v1", &["EndpointSlice"]),
    ("networking.k8s.io/v1", &["Ingress", "IngressClass", "NetworkPolicy"]),
    ("node.k8s.io/v1", &["RuntimeClass"]),
    ("policy/v1", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io/v1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("scheduling.k8s.io/v1", &["PriorityClass"]),
    ("storage.k8s.io/v1", &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"]),
];

/// The groups and the kinds, as helm's option `--api-versions` takes them.
pub(super) fn more_apis() -> impl Iterator<Item = String> {
    KINDS
        .iter()
        .flat_map(|(group, kinds)| std::iter::once((*group).to_owned()).chain(kinds.iter().map(move |kind| format!("{group}/{kind}"))))
}
