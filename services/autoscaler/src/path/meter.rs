//! How many requests are under way, on average and in all, between two reports (spec 1.5; the arithmetic is `libs/autoscaling`).
//!
//! Not here: who is told. Invariant: each request that came in goes out exactly once, however it ends (its [`UnderWay`] is dropped).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_autoscaling::Seconds;
use drover_autoscaling::kpa::{Event, RequestReport, RequestStats};
use tokio::time::Instant;

/// Measures from its creation on.
#[derive(Debug)]
pub struct Meter {
    began: Instant,
    stats: Mutex<RequestStats>,
}

impl Meter {
    /// Starts now.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), stats: Mutex::new(RequestStats::new(0.0)) })
    }

    /// A request came in; `proxied`: through an activator, which counts it too.
    pub fn enter(self: &Arc<Self>, proxied: bool) -> UnderWay {
        self.stats().event(self.now(), Event::In { proxied });
        UnderWay { meter: self.clone(), proxied }
    }

    /// Averages since the last report; what is under way goes on.
    pub fn report(&self) -> RequestReport {
        let mut stats = self.stats();
        stats.report(self.now())
    }

    /// Requests under way now.
    pub fn under_way(&self) -> f64 {
        self.stats().under_way()
    }

    /// Seconds since it began.
    pub fn now(&self) -> Seconds {
        self.began.elapsed().as_secs_f64()
    }

    fn stats(&self) -> MutexGuard<'_, RequestStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way until it is dropped.
#[derive(Debug)]
pub struct UnderWay {
    meter: Arc<Meter>,
    proxied: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut stats = self.meter.stats();
        stats.event(self.meter.now(), Event::Out { proxied: self.proxied });
    }
}
