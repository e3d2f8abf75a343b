//! Metrics of what the agents in the clusters report. Names begin with `drover_agent_`.

use drover_api::agents::AgentReport;
use drover_scheduling::MemberKey;
use drover_service::Common;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Labels: agent and cluster.
type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge>;

/// The metrics; a clone is the same ones.
#[derive(Clone, Default)]
pub struct AgentMetrics {
    age: Gauges,
    watches: Gauges,
    unmet: Gauges,
    held: Gauges,
    exhausted: Gauges,
}

impl AgentMetrics {
    /// Registers the metrics, without values.
    pub fn register(common: &Common) -> Self {
        let metrics = Self::default();
        common.metrics.register(|registry| {
            registry.register("agent_age_seconds", "Seconds since the last sign of life of an agent", metrics.age.clone());
            registry.register("agent_watches", "Policies or containers that an agent watches", metrics.watches.clone());
            registry.register("agent_unmet_pods", "Pods that loads need beyond the upper bounds of their policies", metrics.unmet.clone());
            registry.register("agent_held_containers", "Containers that memory guards hold", metrics.held.clone());
            registry.register(
                "agent_memory_exhausted_seconds",
                "Seconds until the memory of a node would be exhausted at its present growth; absent if none grows",
                metrics.exhausted.clone(),
            );
        });
        metrics
    }

    /// Shows these reports and no others.
    pub fn show(&self, reports: &[(MemberKey, String, AgentReport)]) {
        for gauges in [&self.age, &self.watches, &self.unmet, &self.held, &self.exhausted] {
            gauges.clear();
        }
        for (member, agent, report) in reports {
            let labels = vec![("agent", agent.clone()), ("cluster", member.0.clone())];
            let set = |gauges: &Gauges, value: u64| {
                gauges.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
            };
            set(&self.age, report.age_seconds);
            set(&self.watches, report.watches);
            set(&self.unmet, report.unmet_pods);
            set(&self.held, report.held);
            if let Some(seconds) = report.seconds_to_exhaustion {
                set(&self.exhausted, seconds);
            }
        }
    }
}
