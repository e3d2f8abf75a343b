//! What the tests share: an agent as a process, a real containerd, files that wait.

pub mod agent;
pub mod config;
pub mod containerd;
pub mod kubelet;
pub mod world;

use std::time::{Duration, Instant};

/// Only against hanging: never a judgement of speed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it holds, and says what was waited for if it never does.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
