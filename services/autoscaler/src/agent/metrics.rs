//! Prometheus metrics. Names begin with `drover_autoscaler_`.

use std::fmt;
use std::sync::atomic::AtomicU64;

use drover_tasks::Tasks;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::inbox::Key;

/// Labels: namespace and name of a policy.
type Labels = Vec<(&'static str, String)>;
type Float = Gauge<f64, AtomicU64>;

/// All metrics of the agent.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    decisions: Family<Labels, Counter>,
    scalings: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    current: Family<Labels, Gauge>,
    desired: Family<Labels, Gauge>,
    learner: Family<Labels, Float>,
    shadow: Family<Labels, Float>,
    /// Connections closed because of a limit.
    pub refused: Counter,
    /// 1 while this agent acts.
    pub leader: Gauge,
}

impl Metrics {
    /// All metrics at zero, and the failures of the agent's tasks.
    pub fn new(tasks: &Tasks) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("drover_autoscaler"),
            decisions: Family::default(),
            scalings: Family::default(),
            failures: Family::default(),
            current: Family::default(),
            desired: Family::default(),
            learner: Family::default(),
            shadow: Family::default(),
            refused: Counter::default(),
            leader: Gauge::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("decisions", "Decisions made", metrics.decisions.clone());
        registry.register("scalings", "Decisions carried out", metrics.scalings.clone());
        registry.register("failures", "Observations that lacked a needed value, and writes that were refused", metrics.failures.clone());
        registry.register("current_replicas", "Replicas set at the last decision", metrics.current.clone());
        registry.register("desired_replicas", "Replicas decided last", metrics.desired.clone());
        registry.register("learner_cost", "Cost of the learner over its window, in pod-seconds", metrics.learner.clone());
        registry.register("shadow_cost", "Cost of the threshold policy beside the learner, in pod-seconds", metrics.shadow.clone());
        registry.register("connections_refused", "Connections closed because of a limit", metrics.refused.clone());
        registry.register("leader", "1 while this agent acts", metrics.leader.clone());
        registry.register("task_failures", "Panics and errors of background tasks", tasks.failures());
        metrics
    }
}

fn labels(key: &Key) -> Labels {
    vec![("namespace", key.0.clone()), ("policy", key.1.clone())]
}

impl Metrics {
    /// Counts a decision.
    pub fn decided(&self, key: &Key, current: i32, desired: Option<i32>) {
        let labels = labels(key);
        self.decisions.get_or_create(&labels).inc();
        self.current.get_or_create(&labels).set(i64::from(current));
        match desired {
            Some(desired) => {
                self.desired.get_or_create(&labels).set(i64::from(desired));
            }
            None => self.failed(key),
        }
    }

    /// Counts a decision that was carried out.
    pub fn scaled(&self, key: &Key) {
        self.scalings.get_or_create(&labels(key)).inc();
    }

    /// Counts a failure.
    pub fn failed(&self, key: &Key) {
        self.failures.get_or_create(&labels(key)).inc();
    }

    /// Sets the costs of a learner and of the threshold policy beside it.
    pub fn cost(&self, key: &Key, learner: f64, shadow: f64) {
        self.learner.get_or_create(&labels(key)).set(learner);
        self.shadow.get_or_create(&labels(key)).set(shadow);
    }

    /// Removes the metrics of a deleted policy.
    pub fn forget(&self, key: &Key) {
        let labels = labels(key);
        self.decisions.remove(&labels);
        self.scalings.remove(&labels);
        self.failures.remove(&labels);
        self.current.remove(&labels);
        self.desired.remove(&labels);
        self.learner.remove(&labels);
        self.shadow.remove(&labels);
    }

    /// The metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// None in practice, because the text is written to memory.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
