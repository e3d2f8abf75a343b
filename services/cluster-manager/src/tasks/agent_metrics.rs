//! Metrics of what the agents in the clusters report. Names begin with `drover_agent_`.

use drover_api::agents::AgentReport;
use drover_scheduling::MemberKey;
use drover_service::Common;

use super::gauges::PresentGauges;

/// The metrics; a clone is the same ones.
#[derive(Clone, Default)]
pub struct AgentMetrics {
    age: PresentGauges,
    watches: PresentGauges,
    unmet: PresentGauges,
    held: PresentGauges,
    exhausted: PresentGauges,
}

impl AgentMetrics {
    /// Registers the metrics, without values.
    pub fn register(common: &Common) -> Self {
        let metrics = Self::default();
        common.metrics.register(|registry| {
            metrics.age.register(registry, "agent_age_seconds", "Seconds since the last sign of life of an agent");
            metrics.watches.register(registry, "agent_watches", "Policies or containers that an agent watches");
            metrics.unmet.register(registry, "agent_unmet_pods", "Pods that loads need beyond the upper bounds of their policies");
            metrics.held.register(registry, "agent_held_containers", "Containers that memory guards hold");
            let help = "Seconds until the memory of a node would be exhausted at its present growth; absent if none grows";
            metrics.exhausted.register(registry, "agent_memory_exhausted_seconds", help);
        });
        metrics
    }

    /// Shows these reports and no others.
    pub fn show(&self, reports: &[(MemberKey, String, AgentReport)]) {
        let show = |gauges: &PresentGauges, value: fn(&AgentReport) -> Option<u64>| {
            gauges.show(reports.iter().filter_map(|(member, agent, report)| {
                let labels = vec![("agent", agent.clone()), ("cluster", member.0.clone())];
                Some((labels, i64::try_from(value(report)?).unwrap_or(i64::MAX)))
            }));
        };
        show(&self.age, |report| Some(report.age_seconds));
        show(&self.watches, |report| Some(report.watches));
        show(&self.unmet, |report| Some(report.unmet_pods));
        show(&self.held, |report| Some(report.held));
        show(&self.exhausted, |report| report.seconds_to_exhaustion);
    }
}
