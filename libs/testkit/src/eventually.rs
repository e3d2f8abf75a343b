//! Waiting on a condition instead of sleeping.

use std::panic::Location;
use std::time::{Duration, Instant};

/// Asks again and again until the answer is `Some`; panics at the caller's line when `timeout` has passed.
#[track_caller]
pub fn eventually<T, F>(timeout: Duration, mut ask: F) -> impl Future<Output = T>
where
    F: AsyncFnMut() -> Option<T>,
{
    let caller = Location::caller();
    async move {
        let started = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            assert!(started.elapsed() < timeout, "what {caller} waits for did not happen within {timeout:?}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}
