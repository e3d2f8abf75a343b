//! Statistics of one app in an activator (Knative `concurrency_reporter.go`): every second, and at once for a first request.
//!
//! Invariant: a request that was reported at once is not counted again in its second; one whose report failed is.

use std::sync::{Arc, Mutex, PoisonError};

use drover_autoscaling::kpa::RequestReport;

use crate::path::meter::{Meter, UnderWay};

/// Statistics of one app.
#[derive(Debug)]
pub struct Reporter {
    meter: Arc<Meter>,
    told: Mutex<ReportedState>,
}

#[derive(Debug, Default)]
struct ReportedState {
    /// Whether the app had requests in the last second, so that a new one is not a first request.
    known: bool,
    /// Requests that were reported before their second ended.
    ahead: f64,
}

impl Reporter {
    /// Statistics without any request.
    pub fn new() -> Self {
        Self { meter: Meter::new(), told: Mutex::default() }
    }

    /// Counts a request. The second value is a report to send at once.
    pub fn enter(&self) -> (UnderWay, Option<RequestReport>) {
        let under_way = self.meter.enter(false);
        let mut told = self.told();
        if told.known {
            return (under_way, None);
        }
        *told = ReportedState { known: true, ahead: 1.0 };
        (under_way, Some(RequestReport { average_concurrency: 1.0, count: 1.0, ..RequestReport::default() }))
    }

    /// Notes that a report at once was not accepted.
    pub fn report_rejected(&self) {
        self.told().ahead = 0.0;
    }

    /// The report of the last second; none if the app had and has no requests.
    pub fn report(&self) -> Option<RequestReport> {
        let mut told = self.told();
        let mut report = self.meter.report();
        if !told.known {
            return None;
        }
        let ahead = std::mem::take(&mut told.ahead);
        if report.average_concurrency == 0.0 {
            told.known = false; // the next request is a first request again
        }
        report.average_concurrency = (report.average_concurrency - ahead).max(0.0);
        report.count -= ahead;
        Some(report)
    }

    /// Requests in progress or waiting.
    pub fn under_way(&self) -> f64 {
        self.meter.under_way()
    }

    fn told(&self) -> std::sync::MutexGuard<'_, ReportedState> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Reporter {
    fn default() -> Self {
        Self::new()
    }
}
