//! How many requests each token and each user may send: a bucket that fills steadily and allows a burst. The API token of the configuration
//! and other services have no limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use drover_service::{Principal, Problem, codes};
use http::{HeaderValue, header};

/// Settings of the limit.
#[derive(Args, Clone, Copy, Debug)]
pub struct RateSettings {
    /// Requests per second that each token and each user may send in the long run; more are answered 429 with Retry-After
    #[arg(long = "requests-per-second", env = "DROVER_REQUESTS_PER_SECOND", default_value_t = 50, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub per_second: u32,
    /// Requests that they may send at once after a pause
    #[arg(long = "request-burst", env = "DROVER_REQUEST_BURST", default_value_t = 200, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub burst: u32,
}

impl Default for RateSettings {
    fn default() -> Self {
        Self { per_second: 50, burst: 200 }
    }
}

/// The buckets; cheap to clone.
#[derive(Clone, Debug)]
pub struct RateLimit {
    settings: RateSettings,
    buckets: Arc<Mutex<HashMap<String, Bucket>>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// Buckets that are full again are forgotten when there are so many.
const MANY: usize = 10_000;

impl RateLimit {
    /// The limits of these settings; every sender begins with a full bucket.
    pub fn new(settings: RateSettings) -> Self {
        Self { settings, buckets: Arc::default() }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// `rate_limited`: it is one too many at present.
    pub fn count(&self, principal: &Principal) -> Result<(), Problem> {
        let wait = principal.identity.key().and_then(|key| self.take(key, Instant::now()));
        let Some(wait) = wait else { return Ok(()) };
        let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
        Err(codes::RATE_LIMITED
            .problem(format!("{} sends more than {} requests per second; wait {seconds} s", principal.name, self.settings.per_second))
            .header(header::RETRY_AFTER, HeaderValue::from(seconds)))
    }

    /// How long to wait until the next request; none if this one may pass.
    fn take(&self, key: String, now: Instant) -> Option<Duration> {
        let (rate, burst) = (f64::from(self.settings.per_second), f64::from(self.settings.burst));
        let fill = |bucket: Bucket| (bucket.left + now.saturating_duration_since(bucket.at).as_secs_f64() * rate).min(burst);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MANY && !buckets.contains_key(&key) {
            buckets.retain(|_, bucket| fill(*bucket) < burst);
        }
        let bucket = buckets.entry(key).or_insert(Bucket { left: burst, at: now });
        *bucket = Bucket { left: fill(*bucket), at: now };
        if bucket.left < 1.0 {
            return Some(Duration::from_secs_f64((1.0 - bucket.left) / rate));
        }
        bucket.left -= 1.0;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_passes_and_then_as_many_as_the_rate_allows() {
        let limit = RateLimit::new(RateSettings { per_second: 2, burst: 3 });
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let passes = |key: &str, ms: u64| limit.take(key.to_owned(), at(ms)).is_none();
        assert!((0..3).all(|_| passes("a", 0)), "the burst");
        assert_eq!(limit.take("a".to_owned(), at(0)), Some(Duration::from_millis(500)));
        assert!(passes("b", 0), "each has a bucket of its own");
        assert!(passes("a", 500) && !passes("a", 500) && passes("a", 1000));
        assert!((0..3).all(|_| passes("a", 60_000)) && !passes("a", 60_000), "it is never fuller than the burst");
    }
}
