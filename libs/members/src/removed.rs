//! API versions that Kubernetes has removed, and what took their place: old manifests are refused with the advice to change them.
//!
//! From the Deprecated API Migration Guide of Kubernetes. Fields changed, too, so manifests are not rewritten here.

/// For a message: where Kubernetes has this kind now, or that it has none any more, or that a definition has to be deployed first.
pub fn instead(api_version: &str, kind: &str) -> String {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    match now(api_version, kind) {
        Some("") => "; Kubernetes has removed it without a successor".to_owned(),
        Some(now) => format!("; Kubernetes has it in {now} now, so change the manifest"),
        None if is_custom(group) => "; deploy its CustomResourceDefinition there first".to_owned(),
        None => String::new(),
    }
}

/// Whether objects of this group need a definition. Groups of Kubernetes itself have no dot or are `<word>.k8s.io`, except two.
fn is_custom(group: &str) -> bool {
    let own = group
        .strip_suffix(".k8s.io")
        .is_some_and(|word| !word.contains('.') || word == "rbac.authorization" || word == "flowcontrol.apiserver");
    group.contains('.') && !own
}

fn now(api_version: &str, kind: &str) -> Option<&'static str> {
    Some(match (api_version, kind) {
        ("extensions/v1beta1" | "apps/v1beta1" | "apps/v1beta2", "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet") => "apps/v1",
        ("extensions/v1beta1" | "networking.k8s.io/v1beta1", "Ingress" | "IngressClass" | "NetworkPolicy") => "networking.k8s.io/v1",
        ("extensions/v1beta1" | "policy/v1beta1", "PodSecurityPolicy") => "",
        ("policy/v1beta1", "PodDisruptionBudget") => "policy/v1",
        ("batch/v1beta1" | "batch/v2alpha1", "CronJob") => "batch/v1",
        ("autoscaling/v2beta1" | "autoscaling/v2beta2", "HorizontalPodAutoscaler") => "autoscaling/v2",
        ("rbac.authorization.k8s.io/v1beta1" | "rbac.authorization.k8s.io/v1alpha1", _) => "rbac.authorization.k8s.io/v1",
        ("apiextensions.k8s.io/v1beta1", _) => "apiextensions.k8s.io/v1",
        ("apiregistration.k8s.io/v1beta1", _) => "apiregistration.k8s.io/v1",
        ("admissionregistration.k8s.io/v1beta1", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            "admissionregistration.k8s.io/v1"
        }
        ("admissionregistration.k8s.io/v1alpha1", "InitializerConfiguration") => "",
        ("storage.k8s.io/v1beta1", _) => "storage.k8s.io/v1",
        ("scheduling.k8s.io/v1beta1" | "scheduling.k8s.io/v1alpha1", "PriorityClass") => "scheduling.k8s.io/v1",
        ("coordination.k8s.io/v1beta1", "Lease") => "coordination.k8s.io/v1",
        ("discovery.k8s.io/v1beta1", "EndpointSlice") => "discovery.k8s.io/v1",
        ("events.k8s.io/v1beta1", "Event") => "events.k8s.io/v1",
        ("node.k8s.io/v1beta1", "RuntimeClass") => "node.k8s.io/v1",
        ("certificates.k8s.io/v1beta1", "CertificateSigningRequest") => "certificates.k8s.io/v1",
        ("flowcontrol.apiserver.k8s.io/v1beta1" | "flowcontrol.apiserver.k8s.io/v1beta2" | "flowcontrol.apiserver.k8s.io/v1beta3", _) => {
            "flowcontrol.apiserver.k8s.io/v1"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_says_what_took_the_place_of_a_removed_version() {
        assert_eq!(instead("extensions/v1beta1", "Deployment"), "; Kubernetes has it in apps/v1 now, so change the manifest");
        assert_eq!(instead("policy/v1beta1", "PodSecurityPolicy"), "; Kubernetes has removed it without a successor");
        assert_eq!(instead("monitoring.coreos.com/v1", "ServiceMonitor"), "; deploy its CustomResourceDefinition there first");
        assert!(instead("gateway.networking.k8s.io/v1", "Gateway").contains("CustomResourceDefinition"));
        assert_eq!((instead("v1", "Widget"), instead("networking.k8s.io/v9", "Thing")), (String::new(), String::new()));
    }
}
