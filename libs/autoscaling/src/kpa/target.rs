//! The target load of one pod (Knative `pkg/reconciler/autoscaling/resources/target.go`).

use super::{KpaMetric, KpaSpec, Resolved};

/// Default target of concurrent requests per pod.
pub const CONCURRENCY_TARGET: f64 = 100.0;
/// Default share of the concurrency target to use.
pub const CONCURRENCY_UTILIZATION: f64 = 0.7;
/// Default target of requests per second per pod.
pub const RPS_TARGET: f64 = 200.0;
/// Share of the target of requests per second to use.
pub const RPS_UTILIZATION: f64 = 0.7;
/// The smallest target.
const SMALLEST: f64 = 0.01;

/// Converts a share as written: values above 1 are per cent.
pub fn share(written: f64) -> f64 {
    if written > 1.0 { written / 100.0 } else { written }
}

/// Resolves a target per pod: what the user wrote, else the hard limit, else `default`; never above the hard limit; times the share to use.
/// The hard limit is `container_concurrency`, which counts for the metric `concurrency` only (0: none).
pub fn resolve(metric: KpaMetric, container_concurrency: f64, target: Option<f64>, utilization: f64, default: f64) -> Resolved {
    let hard = metric == KpaMetric::Concurrency && container_concurrency > 0.0;
    let total = match target {
        Some(target) if hard => target.min(container_concurrency),
        Some(target) => target,
        None if hard => container_concurrency,
        None => default,
    };
    Resolved { target: (total * utilization).max(SMALLEST), total }
}

impl KpaSpec {
    /// The target that decisions use.
    pub fn resolve(&self) -> Resolved {
        let (default, filled) = match self.metric {
            KpaMetric::Concurrency => (CONCURRENCY_TARGET, CONCURRENCY_UTILIZATION),
            KpaMetric::Rps => (RPS_TARGET, RPS_UTILIZATION),
        };
        let filled = self.target_utilization.map_or(filled, share);
        self.resolved.unwrap_or_else(|| resolve(self.metric, self.container_concurrency, self.target, filled, default))
    }
}
