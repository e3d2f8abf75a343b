//! Metrics of placement: by which policy apps that call each other were placed. Only committed decisions count, once each.

use drover_scheduling::{Decision, GroupPolicy};
use drover_service::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Counts committed decisions.
#[derive(Clone)]
pub struct GroupMetrics {
    decisions: Family<Labels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    policy: &'static str,
    taken: &'static str,
}

/// The policy of a call graph, and the one whose placement was taken.
pub type PolicyUse = (GroupPolicy, GroupPolicy);

/// The policy that placed the apps of a decision; `None` if they were not placed by their calls.
pub fn policy_use(decision: &Decision) -> Option<PolicyUse> {
    let story = decision.calls.as_ref()?.chosen_by.as_ref()?;
    Some((story.policy, story.taken))
}

impl GroupMetrics {
    /// Adds the metrics to those of the service.
    pub fn register(metrics: &Metrics) -> Self {
        let decisions = Family::<Labels, Counter>::default();
        metrics.register(|registry| {
            let help = "Decisions for apps that call each other, by the policy of the call graph and the one whose placement was taken";
            registry.register("group_decisions", help, decisions.clone());
        });
        Self { decisions }
    }

    /// Counts one committed decision.
    pub fn count(&self, (policy, taken): PolicyUse) {
        self.decisions.get_or_create(&Labels { policy: policy.name(), taken: taken.name() }).inc();
    }
}
