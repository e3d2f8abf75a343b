//! Pushed or scraped samples averaged over the stable and the panic window: what KPA decides by.

use serde::{Deserialize, Serialize};

use super::window::{Averaging, Window};
use super::{KpaMetric, KpaSpec, RequestReport};
use crate::{Reading, Seconds};

/// Seconds of a bucket, of a scrape, and of a report.
const BUCKET: Seconds = 1.0;

/// The two windows of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collector {
    stable: Window,
    panic: Window,
    /// Without a burst capacity limit the activator alone reports, and silence means no requests.
    silence_is_zero: bool,
}

impl Collector {
    /// Empty windows as the specification asks for.
    pub fn new(spec: &KpaSpec) -> Self {
        let window = |length| Window::new(length, BUCKET, Averaging::Linear);
        Self { stable: window(spec.stable_window), panic: window(spec.panic_window()), silence_is_zero: spec.target_burst_capacity < 0.0 }
    }

    /// Follows a changed specification without losing what was measured.
    pub fn resize(&mut self, spec: &KpaSpec) {
        self.stable.resize(spec.stable_window);
        self.panic.resize(spec.panic_window());
        self.silence_is_zero = spec.target_burst_capacity < 0.0;
    }

    /// Adds a sample; samples of the same second add up (activator and pods together).
    pub fn record(&mut self, at: Seconds, value: f64) {
        self.stable.record(at, value);
        self.panic.record(at, value);
    }

    /// Adds a scraped report, without what the activator pushed itself.
    pub fn record_report(&mut self, at: Seconds, metric: KpaMetric, report: &RequestReport) {
        self.record(
            at,
            match metric {
                KpaMetric::Concurrency => report.own_concurrency(),
                KpaMetric::Rps => report.own_count(),
            },
        );
    }

    /// The averages now: (stable, panic). No data in a window is no value.
    pub fn read(&self, now: Seconds) -> (Reading<f64>, Reading<f64>) {
        // Both windows see the same writes; what is empty for the panic window only is a zero there.
        if self.stable.is_empty(now) && !self.silence_is_zero {
            let none = || Reading::Absent("no sample within the stable window".to_owned());
            return (none(), none());
        }
        (Reading::Value(self.stable.average(now)), Reading::Value(self.panic.average(now)))
    }
}
