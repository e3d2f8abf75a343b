//! The Prometheus metrics of the agent. Their names begin with `drover_memguard_`.

use std::fmt;
use std::sync::atomic::AtomicU64;

use drover_tasks::Tasks;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::wire::{Pressure, Totals};

type Seconds = Counter<f64, AtomicU64>;
type Float = Gauge<f64, AtomicU64>;

/// The metrics and the registry that shows them.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub pauses: Counter,
    /// `memory.high` leases begun.
    pub leases: Counter,
    /// Containers held at the start gate.
    pub gated: Counter,
    pub sacrifices: Counter,
    /// Containers that died of a SIGKILL which the guard did not send.
    pub oom_kills: Counter,
    /// Episodes (first hold to last release) without such a death.
    pub oom_avoided: Counter,
    pub paused_seconds: Seconds,
    /// Bytes that containers allocated while they were held.
    pub leaked: Counter,
    /// Seconds from the reading of memory until the container is held.
    pub reaction: Histogram,
    /// Connections closed because of a limit.
    pub refused: Counter,
    /// Holds that failed.
    pub failures: Counter,
    held: Gauge,
    used: Gauge,
    capacity: Gauge,
    exhaustion: Float,
}

impl Metrics {
    /// All metrics at zero, and the failures of the agent's tasks.
    pub fn new(tasks: &Tasks) -> Self {
        let reaction = Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5]);
        let mut metrics = Self {
            registry: Registry::with_prefix("drover_memguard"),
            pauses: Counter::default(),
            leases: Counter::default(),
            gated: Counter::default(),
            sacrifices: Counter::default(),
            oom_kills: Counter::default(),
            oom_avoided: Counter::default(),
            paused_seconds: Seconds::default(),
            leaked: Counter::default(),
            reaction,
            refused: Counter::default(),
            failures: Counter::default(),
            held: Gauge::default(),
            used: Gauge::default(),
            capacity: Gauge::default(),
            exhaustion: Float::default(),
        };
        metrics.register();
        metrics.registry.register("task_failures", "Panics and errors of background tasks", tasks.failures());
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("pauses", "Containers paused", self.pauses.clone());
        registry.register("leases", "Leases of memory.high that began", self.leases.clone());
        registry.register("connections_refused", "Connections closed because of a limit", self.refused.clone());
        registry.register("gated", "Containers held at the start gate", self.gated.clone());
        registry.register("sacrifices", "Containers sacrificed so that the others can continue", self.sacrifices.clone());
        registry.register("oom_kills", "Containers that died of a SIGKILL which the guard did not send", self.oom_kills.clone());
        registry.register(
            "oom_avoided",
            "Episodes (first hold to last release) without a death counted in oom_kills",
            self.oom_avoided.clone(),
        );
        registry.register("paused_seconds", "Container-seconds paused, leased or held at the start gate", self.paused_seconds.clone());
        registry.register("leaked_bytes", "Bytes that containers allocated while they were held", self.leaked.clone());
        registry.register("reaction_seconds", "Seconds from the reading of memory until the container is held", self.reaction.clone());
        registry.register("failures", "Holds that failed", self.failures.clone());
        registry.register("held", "Containers held now", self.held.clone());
        registry.register("node_used_bytes", "Memory of the node in use", self.used.clone());
        registry.register("node_capacity_bytes", "Memory capacity of the node", self.capacity.clone());
        registry.register(
            "exhaustion_seconds",
            "Predicted seconds until memory is exhausted; +Inf if its use does not grow",
            self.exhaustion.clone(),
        );
    }

    /// Sets the gauges from the present pressure.
    pub fn show(&self, pressure: &Pressure) {
        let bytes = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.held.set(i64::from(pressure.held));
        self.used.set(bytes(pressure.used));
        self.capacity.set(bytes(pressure.capacity));
        self.exhaustion.set(pressure.seconds_to_exhaustion.unwrap_or(f64::INFINITY));
    }

    /// The counters, for the status.
    pub fn totals(&self) -> Totals {
        Totals {
            pauses: self.pauses.get(),
            leases: self.leases.get(),
            gated: self.gated.get(),
            sacrifices: self.sacrifices.get(),
            oom_kills: self.oom_kills.get(),
            oom_avoided: self.oom_avoided.get(),
            paused_seconds: self.paused_seconds.get(),
            leaked_bytes: self.leaked.get(),
        }
    }

    /// The metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// When formatting fails, which does not happen because the target is memory.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
