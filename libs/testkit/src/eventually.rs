//! Waits for a condition instead of a fixed time.

use std::panic::Location;
use std::time::{Duration, Instant};

/// Calls `ask` repeatedly until it returns `Some`.
///
/// # Panics
/// `timeout` has passed; the message names the line of the caller.
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
            assert!(started.elapsed() < timeout, "the condition at {caller} was not met within {timeout:?}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}
