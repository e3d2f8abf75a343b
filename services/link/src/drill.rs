//! What tests do to an agent: stop it at a point of its work, as if it had been killed there, and have it renew its certificate at once.
//!
//! Whoever stops here is ended by the test. What is on disk and what the hub knows is then the same as after a kill, because each file is
//! replaced as a whole.

use std::sync::Arc;

use tokio::sync::Notify;

/// The points of a first certificate and of a renewal, in their order.
pub const POINTS: [&str; 5] = ["key", "issued", "authority", "identity", "settled"];

/// The drill of an agent; the default one is none.
#[derive(Clone, Debug, Default)]
pub struct Drill {
    stop_at: Option<&'static str>,
    renews: bool,
    stopped: Arc<Notify>,
}

impl Drill {
    /// Stops at one of [`POINTS`].
    pub fn stop_at(point: &'static str) -> Self {
        Self { stop_at: Some(point), ..Self::default() }
    }

    /// Renews its certificate at once, the first time.
    #[must_use]
    pub fn renewing(self) -> Self {
        Self { renews: true, ..self }
    }

    /// Waits until the agent has stopped.
    pub async fn stopped(&self) {
        self.stopped.notified().await;
    }

    pub(crate) fn renews(&self) -> bool {
        self.renews
    }

    pub(crate) async fn reached(&self, point: &str) {
        if self.stop_at == Some(point) {
            self.stopped.notify_one();
            std::future::pending::<()>().await;
        }
    }
}
