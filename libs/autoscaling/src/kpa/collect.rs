//! Averages pushed or scraped samples over the stable and the panic window; KPA decides on these averages.

use serde::{Deserialize, Serialize};

use super::window::{Averaging, Window};
use super::{KpaMetric, KpaSpec, RequestReport};
use crate::{Reading, Seconds};

/// Seconds per bucket, which is also the interval of scrapes and reports.
const BUCKET: Seconds = 1.0;

/// The two windows of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collector {
    stable: Window,
    panic: Window,
    /// Without a limit on bursts only the activator reports, so no report means no requests.
    silence_is_zero: bool,
}

impl Collector {
    /// Empty windows with the lengths of the specification.
    pub fn new(spec: &KpaSpec) -> Self {
        let window = |length| Window::new(length, BUCKET, Averaging::Linear);
        Self { stable: window(spec.stable_window), panic: window(spec.panic_window()), silence_is_zero: spec.target_burst_capacity < 0.0 }
    }

    /// Applies a changed specification and keeps the samples.
    pub fn resize(&mut self, spec: &KpaSpec) {
        self.stable.resize(spec.stable_window);
        self.panic.resize(spec.panic_window());
        self.silence_is_zero = spec.target_burst_capacity < 0.0;
    }

    /// Adds a sample. Samples of the same second are summed, because activator and pods each report their part.
    pub fn record(&mut self, at: Seconds, value: f64) {
        self.stable.record(at, value);
        self.panic.record(at, value);
    }

    /// Adds a scraped report, without the part that the activator pushes itself.
    pub fn record_report(&mut self, at: Seconds, metric: KpaMetric, report: &RequestReport) {
        self.record(
            at,
            match metric {
                KpaMetric::Concurrency => report.own_concurrency(),
                KpaMetric::Rps => report.own_count(),
            },
        );
    }

    /// What the stable window holds: time and value of each second with a value, and of the first and the last one.
    pub fn samples(&self) -> Vec<(Seconds, f64)> {
        self.stable.samples()
    }

    /// The averages at `now`: (stable, panic). A stable window without samples gives no value.
    pub fn read(&self, now: Seconds) -> (Reading<f64>, Reading<f64>) {
        // Both windows get the same samples; if only the panic window is empty, its value is zero.
        if self.stable.is_empty(now) && !self.silence_is_zero {
            let none = || Reading::Absent("no sample within the stable window".to_owned());
            return (none(), none());
        }
        (Reading::Value(self.stable.average(now)), Reading::Value(self.panic.average(now)))
    }
}
