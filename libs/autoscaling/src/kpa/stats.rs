//! Concurrent requests between two reports, as the queue-proxy measures them per request (Knative networking `pkg/http/stats/request.go`).

use serde::{Deserialize, Serialize};

use crate::Seconds;

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEvent {
    /// The request arrived.
    In {
        /// It came through the activator, which has counted it already.
        proxied: bool,
    },
    /// The response was sent.
    Out {
        /// The request came through the activator.
        proxied: bool,
    },
}

/// Running statistics. A report resets the sums, but not the requests that are in progress.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestStats {
    last: Seconds,
    under_way: f64,
    under_way_proxied: f64,
    seconds: Seconds,
    concurrency_seconds: f64,
    concurrency_seconds_proxied: f64,
    count: f64,
    count_proxied: f64,
}

/// Averages since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestReport {
    /// Concurrent requests, averaged over the time since the last report.
    pub average_concurrency: f64,
    /// The part of `average_concurrency` that came through the activator.
    pub average_proxied_concurrency: f64,
    /// Requests that arrived.
    pub count: f64,
    /// The part of `count` that came through the activator.
    pub proxied_count: f64,
}

impl RequestReport {
    /// Concurrent requests without those that the activator reports itself.
    pub fn own_concurrency(&self) -> f64 {
        self.average_concurrency - self.average_proxied_concurrency
    }
    /// Requests without those that the activator reports itself.
    pub fn own_count(&self) -> f64 {
        self.count - self.proxied_count
    }
}

impl RequestStats {
    /// Statistics that begin at `start`.
    pub fn new(start: Seconds) -> Self {
        Self {
            last: start,
            under_way: 0.0,
            under_way_proxied: 0.0,
            seconds: 0.0,
            concurrency_seconds: 0.0,
            concurrency_seconds_proxied: 0.0,
            count: 0.0,
            count_proxied: 0.0,
        }
    }

    /// Requests in progress now.
    pub fn under_way(&self) -> f64 {
        self.under_way
    }

    /// Counts an event. If time runs backwards, no time is added.
    pub fn event(&mut self, at: Seconds, event: RequestEvent) {
        self.advance(at);
        let (change, proxied) = match event {
            RequestEvent::In { proxied } => (1.0, proxied),
            RequestEvent::Out { proxied } => (-1.0, proxied),
        };
        self.under_way += change;
        self.count += change.max(0.0);
        if proxied {
            self.under_way_proxied += change;
            self.count_proxied += change.max(0.0);
        }
    }

    /// Returns the averages since the last report and resets them.
    pub fn report(&mut self, at: Seconds) -> RequestReport {
        self.advance(at);
        let average = |sum: f64| if self.seconds > 0.0 { sum / self.seconds } else { 0.0 };
        let report = RequestReport {
            average_concurrency: average(self.concurrency_seconds),
            average_proxied_concurrency: average(self.concurrency_seconds_proxied),
            count: self.count,
            proxied_count: self.count_proxied,
        };
        let (under_way, under_way_proxied) = (self.under_way, self.under_way_proxied);
        *self = Self { under_way, under_way_proxied, ..Self::new(self.last) };
        report
    }

    fn advance(&mut self, at: Seconds) {
        let passed = at - self.last;
        if passed > 0.0 {
            self.seconds += passed;
            self.concurrency_seconds += self.under_way * passed;
            self.concurrency_seconds_proxied += self.under_way_proxied * passed;
            self.last = at;
        }
    }
}
