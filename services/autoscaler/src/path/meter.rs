//! Counts the requests in progress and averages them between two reports (the calculation is in `libs/autoscaling`).
//!
//! Invariant: each request that came in goes out exactly once, however it ends, because its [`UnderWay`] is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_autoscaling::Seconds;
use drover_autoscaling::kpa::{RequestEvent, RequestReport, RequestStats};
use tokio::time::Instant;

/// Measures from its creation on.
#[derive(Debug)]
pub struct Meter {
    began: Instant,
    stats: Mutex<RequestStats>,
}

impl Meter {
    /// A meter that measures from now on.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), stats: Mutex::new(RequestStats::new(0.0)) })
    }

    /// Counts a request that came in; `proxied`: it came through an activator, which counts it too.
    pub fn enter(self: &Arc<Self>, proxied: bool) -> UnderWay {
        self.stats().event(self.now(), RequestEvent::In { proxied });
        UnderWay { meter: self.clone(), proxied }
    }

    /// Averages since the last report; requests in progress stay counted.
    pub fn report(&self) -> RequestReport {
        let mut stats = self.stats();
        stats.report(self.now())
    }

    /// Requests in progress now.
    pub fn under_way(&self) -> f64 {
        self.stats().under_way()
    }

    /// Seconds since the start.
    pub fn now(&self) -> Seconds {
        self.began.elapsed().as_secs_f64()
    }

    fn stats(&self) -> MutexGuard<'_, RequestStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is in progress until this is dropped.
#[derive(Debug)]
pub struct UnderWay {
    meter: Arc<Meter>,
    proxied: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut stats = self.meter.stats();
        stats.event(self.meter.now(), RequestEvent::Out { proxied: self.proxied });
    }
}
