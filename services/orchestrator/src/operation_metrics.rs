//! Metrics of operations: how many ended, by kind and state, and how long they took. The engine calls [`OperationMetrics::count`]
//! once per end, so nothing is read from the database. Ends that other processes journal are in the metrics of those processes.

use drover_service::metrics::Metrics;
use drover_workflow::EndedWorkflow;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// Counts operations as they end.
pub struct OperationMetrics {
    operations: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    kind: String,
    state: String,
}

impl OperationMetrics {
    /// Adds the metrics to those of the service.
    pub fn register(metrics: &Metrics) -> Self {
        let operations = Family::<Labels, Counter>::default();
        let seconds = Family::<Labels, Histogram, fn() -> Histogram>::new_with_constructor(|| {
            Histogram::new([0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0])
        });
        metrics.register(|registry| {
            registry.register("operations", "Operations that ended, by kind and state", operations.clone());
            registry.register("operation_seconds", "Seconds from an operation's start to its end", seconds.clone());
        });
        Self { operations, seconds }
    }

    /// Counts one end.
    pub fn count(&self, ended: &EndedWorkflow) {
        let labels = Labels { kind: ended.kind.clone(), state: ended.status.clone() };
        self.operations.get_or_create(&labels).inc();
        self.seconds.get_or_create(&labels).observe(ended.took.as_secs_f64());
    }
}
