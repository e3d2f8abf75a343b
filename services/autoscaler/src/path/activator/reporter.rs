//! What an activator says about one app (Knative `concurrency_reporter.go`): each second, and at once about a first request.
//!
//! Invariant: a request that was told at once is not told again with its second; one that could not be told is.

use std::sync::{Arc, Mutex, PoisonError};

use drover_autoscaling::kpa::RequestReport;

use crate::path::meter::{Meter, UnderWay};

/// Of one app.
#[derive(Debug)]
pub struct Reporter {
    meter: Arc<Meter>,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// Requests came lately.
    known: bool,
    /// Requests that were told ahead of their second.
    ahead: f64,
}

impl Reporter {
    /// Nothing came yet.
    pub fn new() -> Self {
        Self { meter: Meter::new(), told: Mutex::default() }
    }

    /// A request came; with what must be told at once.
    pub fn enter(&self) -> (UnderWay, Option<RequestReport>) {
        let under_way = self.meter.enter(false);
        let mut told = self.told();
        if told.known {
            return (under_way, None);
        }
        *told = Told { known: true, ahead: 1.0 };
        (under_way, Some(RequestReport { average_concurrency: 1.0, count: 1.0, ..RequestReport::default() }))
    }

    /// What was to be told at once was not taken.
    pub fn not_told(&self) {
        self.told().ahead = 0.0;
    }

    /// The last second; none if nothing was told of the app before, and nothing came.
    pub fn report(&self) -> Option<RequestReport> {
        let mut told = self.told();
        let mut report = self.meter.report();
        if !told.known {
            return None;
        }
        let ahead = std::mem::take(&mut told.ahead);
        if report.average_concurrency == 0.0 {
            told.known = false; // the next one is a first one again
        }
        report.average_concurrency = (report.average_concurrency - ahead).max(0.0);
        report.count -= ahead;
        Some(report)
    }

    /// Requests under way or waiting.
    pub fn under_way(&self) -> f64 {
        self.meter.under_way()
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Reporter {
    fn default() -> Self {
        Self::new()
    }
}
