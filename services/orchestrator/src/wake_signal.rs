//! The signal by which requests and feeds wake a background task before its period is over.

use std::sync::Arc;
use std::time::Duration;

/// Wakes one waiting task. A signal sent while the task works is kept and wakes it at its next wait; several count as one.
#[derive(Clone, Default)]
pub struct WakeSignal(Arc<tokio::sync::Notify>);

impl WakeSignal {
    /// Wakes the task now, or at its next wait.
    pub fn send(&self) {
        self.0.notify_one();
    }

    /// Waits for a signal, at most for `period`.
    pub async fn wait(&self, period: Duration) {
        let _ = tokio::time::timeout(period, self.0.notified()).await;
    }
}
