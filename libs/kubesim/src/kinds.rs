//! The served kinds: the built-in table, and one entry per version of a CustomResourceDefinition.

use serde_json::Value;
use std::sync::{Arc, LazyLock};

use crate::object::{list, text};

/// A served kind in one version.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedKind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub namespaced: bool,
    pub short: Vec<String>,
    /// Has a `/status` subresource.
    pub status: bool,
    /// Has a `/scale` subresource.
    pub scale: bool,
    /// Defined by a CustomResourceDefinition.
    pub custom: bool,
    /// `plural.group`, or the plural alone for the core group: the key under which objects are stored, whatever the version.
    pub resource: Arc<str>,
}

impl ServedKind {
    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// group, version, kind, plural, short names, flags: n namespaced, s status, c scale
const BUILT_IN: &[(&str, &str, &str, &str, &str, &str)] = &[
    ("", "v1", "Namespace", "namespaces", "ns", "s"),
    ("", "v1", "Node", "nodes", "no", "s"),
    ("", "v1", "PersistentVolume", "persistentvolumes", "pv", "s"),
    ("", "v1", "Pod", "pods", "po", "ns"),
    ("", "v1", "Service", "services", "svc", "ns"),
    ("", "v1", "Endpoints", "endpoints", "ep", "n"),
    ("", "v1", "ConfigMap", "configmaps", "cm", "n"),
    ("", "v1", "Secret", "secrets", "", "n"),
    ("", "v1", "ServiceAccount", "serviceaccounts", "sa", "n"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", "ns"),
    ("", "v1", "ReplicationController", "replicationcontrollers", "rc", "nsc"),
    ("", "v1", "Event", "events", "ev", "n"),
    ("", "v1", "ResourceQuota", "resourcequotas", "quota", "ns"),
    ("", "v1", "LimitRange", "limitranges", "limits", "n"),
    ("", "v1", "PodTemplate", "podtemplates", "", "n"),
    ("apps", "v1", "Deployment", "deployments", "deploy", "nsc"),
    ("apps", "v1", "ReplicaSet", "replicasets", "rs", "nsc"),
    ("apps", "v1", "StatefulSet", "statefulsets", "sts", "nsc"),
    ("apps", "v1", "DaemonSet", "daemonsets", "ds", "ns"),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", "", "n"),
    ("batch", "v1", "Job", "jobs", "", "ns"),
    ("batch", "v1", "CronJob", "cronjobs", "cj", "ns"),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", "ing", "ns"),
    ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", "", ""),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "netpol", "n"),
    ("networking.k8s.io", "v1", "IPAddress", "ipaddresses", "ip", ""),
    ("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", "", "s"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", "", "n"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "", "n"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "", ""),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "", ""),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", "ns"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", "ns"),
    ("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", "ns"),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", "n"),
    ("coordination.k8s.io", "v1", "Lease", "leases", "", "n"),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "pc", ""),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", "sc", ""),
    ("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", "", "s"),
    ("storage.k8s.io", "v1", "CSIDriver", "csidrivers", "", ""),
    ("storage.k8s.io", "v1", "CSINode", "csinodes", "", ""),
    ("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", "", "n"),
    ("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", "vac", ""),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "", ""),
    ("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", "", ""),
    ("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", "", "ns"),
    ("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", "", "n"),
    ("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", "", ""),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "crd,crds", "s"),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices", "", "s"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "", ""),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "", ""),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "", "s"),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", "", ""),
    ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", "", "s"),
    ("flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", "", "s"),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", "csr", "s"),
];

/// The built-in kinds.
pub static BUILT_INS: LazyLock<Vec<Arc<ServedKind>>> = LazyLock::new(|| {
    BUILT_IN
        .iter()
        .map(|(group, version, kind, plural, short, flags)| {
            Arc::new(ServedKind {
                group: group.to_string(),
                version: version.to_string(),
                kind: kind.to_string(),
                plural: plural.to_string(),
                singular: kind.to_lowercase(),
                namespaced: flags.contains('n'),
                short: short.split(',').filter(|s| !s.is_empty()).map(String::from).collect(),
                status: flags.contains('s'),
                scale: flags.contains('c'),
                custom: false,
                resource: resource_id(group, plural),
            })
        })
        .collect()
});

/// The key under which objects of a kind are stored.
pub fn resource_id(group: &str, plural: &str) -> Arc<str> {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
}

/// The kinds that a CustomResourceDefinition defines: one per served version.
pub fn of_definition(definition: &Value) -> Vec<Arc<ServedKind>> {
    let (group, plural) = (text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
    let kind = text(definition, "/spec/names/kind");
    let singular = Some(text(definition, "/spec/names/singular")).filter(|s| !s.is_empty());
    list(definition, "/spec/versions")
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| {
            Arc::new(ServedKind {
                group: group.into(),
                version: text(version, "/name").into(),
                kind: kind.into(),
                plural: plural.into(),
                singular: singular.map_or_else(|| kind.to_lowercase(), String::from),
                namespaced: text(definition, "/spec/scope") == "Namespaced",
                short: list(definition, "/spec/names/shortNames").iter().filter_map(|s| Some(s.as_str()?.into())).collect(),
                status: version.pointer("/subresources/status").is_some(),
                scale: version.pointer("/subresources/scale").is_some(),
                custom: true,
                resource: resource_id(group, plural),
            })
        })
        .collect()
}
