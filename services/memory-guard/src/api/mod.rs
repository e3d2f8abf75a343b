//! What the API server adds to what the runtime knows: owners, priorities, probes, Leases, PodDisruptionBudgets. It is optional. Without
//! it the view is empty, and what is not known counts against a pod where that matters.

mod client;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_memguard::PodFacts;

pub use client::{ApiServer, ApiWrite};
use types::{Pod, Selector};

/// What was last read from the API server. `version` grows with each reading, so that verdicts are recomputed only then.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// Number of readings; 0 if the API server was never read.
    pub version: u64,
    pods: BTreeMap<String, Pod>,
    lease_holders: BTreeSet<(String, String)>,
    budgets: Vec<PodBudget>,
}

#[derive(Clone, Debug)]
struct PodBudget {
    namespace: String,
    key: Arc<str>,
    selector: Selector,
    allowed: u32,
}

impl ClusterView {
    /// Priority of a pod; 0 if the pod is not known.
    pub fn priority(&self, uid: &str) -> i32 {
        self.pods.get(uid).and_then(|pod| pod.spec.priority).unwrap_or(0)
    }

    /// Keys of the PodDisruptionBudgets that select a pod.
    pub fn budgets_of(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<Arc<str>> {
        let selecting = |budget: &&PodBudget| budget.namespace == namespace && budget.selector.selects(labels);
        self.budgets.iter().filter(selecting).map(|budget| budget.key.clone()).collect()
    }

    /// How many disruptions each budget allows.
    pub fn allowances(&self) -> BTreeMap<Arc<str>, u32> {
        self.budgets.iter().map(|budget| (budget.key.clone(), budget.allowed)).collect()
    }

    /// Adds the facts that only the API server knows.
    pub fn complete(&self, uid: &str, pod: &(String, String), container: &str, facts: &mut PodFacts) {
        facts.holds_lease = self.holds_lease(pod);
        let Some(known) = self.pods.get(uid) else { return };
        facts.labels.clone_from(&known.metadata.labels);
        facts.annotations.clone_from(&known.metadata.annotations);
        facts.owner_kind = known.metadata.owner_references.iter().find(|owner| owner.controller).map(|owner| owner.kind.clone());
        facts.qos = known.qos().or(facts.qos);
        facts.priority_class.clone_from(&known.spec.priority_class_name);
        facts.privileged |= known.privileged();
        facts.node_plugin |= known.host_paths().any(crate::facts::serves_node);
        facts.probes = known.probes(container);
    }

    /// Whether the pod holds a Lease: `holderIdentity` is the pod's name, or begins with it and continues with a character that no name
    /// can contain (`pod_uuid`, as users of client-go write it).
    fn holds_lease(&self, (namespace, name): &(String, String)) -> bool {
        self.lease_holders.iter().any(|(holder_namespace, holder)| {
            let rest = holder.strip_prefix(name.as_str());
            holder_namespace == namespace
                && rest.is_some_and(|rest| {
                    rest.chars().next().is_none_or(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.'))
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_lease_matches_the_pod_name_with_or_without_a_suffix() {
        let holders = [("a".to_owned(), "web-0".to_owned()), ("a".to_owned(), "db-1_5f3c".to_owned())].into();
        let view = ClusterView { lease_holders: holders, ..ClusterView::default() };
        let holds = |name: &str| view.holds_lease(&("a".to_owned(), name.to_owned()));
        assert!(holds("web-0") && holds("db-1"));
        assert!(!holds("web") && !holds("db-11") && !holds("we"));
        assert!(!view.holds_lease(&("b".to_owned(), "web-0".to_owned())));
    }

    #[test]
    fn complete_adds_owner_priority_and_probes() -> Result<(), serde_json::Error> {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "a", "uid": "1", "labels": {"x": "y"},
                         "ownerReferences": [{"kind": "Job", "controller": true, "name": "j", "uid": "2"}]},
            "spec": {"priorityClassName": "low", "priority": -5, "containers": [
                {"name": "c", "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 10, "timeoutSeconds": 1, "failureThreshold": 3}}]},
            "status": {"qosClass": "Burstable"}}))?;
        let view = ClusterView { pods: [("1".to_owned(), pod)].into(), version: 1, ..ClusterView::default() };
        let mut facts = PodFacts::default();
        view.complete("1", &("a".into(), "p".into()), "c", &mut facts);
        assert_eq!(facts.owner_kind.as_deref(), Some("Job"));
        assert_eq!(facts.priority_class.as_deref(), Some("low"));
        assert_eq!(facts.probes.as_ref().map(|probes| probes[0].budget().as_secs()), Some(18));
        assert_eq!(view.priority("1"), -5);
        Ok(())
    }

    #[test]
    fn selector_matches_labels_and_expressions() -> Result<(), serde_json::Error> {
        let selector: Selector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"app": "x"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]}))?;
        let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert!(selector.selects(&labels(&[("app", "x")])));
        assert!(!selector.selects(&labels(&[("app", "x"), ("tier", "front")])));
        assert!(!selector.selects(&labels(&[("tier", "back")])));
        Ok(())
    }
}
