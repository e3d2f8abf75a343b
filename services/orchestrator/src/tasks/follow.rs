//! Follows the synchronizer's feed `bindings`: keeps the latest status of each binding and wakes the workflows parked on it.
//!
//! A workflow that is woken runs several SQL statements. So a status wakes its workflow at once only if it may end the wait or start
//! a deadline, and only the first few do within a short time. The others are delivered together, and so are mere progress
//! reports, which are most of what a cluster sends.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::bindings::{BindingStatus, Phase};
use drover_service::FeedReader;
use uuid::Uuid;

use crate::app::App;
use crate::environment::binding_key;

/// For how long wakes that may end a wait are collected.
const DECISIVE_PERIOD: Duration = Duration::from_millis(200);
/// How many of them are delivered at once within that time.
const AT_ONCE: usize = 3;
/// For how long wakes about mere progress are collected. Progress is only shown to users.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// Reads the feed; never returns. The reader retries by itself.
pub async fn run(app: App, mut reader: FeedReader<BindingStatus>) {
    let wakes = BindingWakes::default();
    loop {
        let batch = reader.next().await;
        // After a reset the feed sends everything again. A binding that it no longer mentions may have changed too.
        let forgotten = if batch.reset { app.environment.statuses.reset() } else { Vec::new() };
        store(&app, &wakes, batch.items);
        for id in forgotten {
            app.engine.wake(&binding_key(id));
        }
    }
}

/// Stores the statuses of a batch and wakes the workflows that wait for them.
fn store(app: &App, wakes: &BindingWakes, items: Vec<(String, Option<BindingStatus>)>) {
    for (key, status) in items {
        let Ok(id) = key.parse::<Uuid>() else { continue };
        let phase = status.as_ref().map_or(Phase::Gone, |status| status.phase);
        let in_trouble = phase == Phase::Unreachable || status.as_ref().is_some_and(|status| status.unschedulable.is_some());
        app.environment.statuses.set(id, status);
        wakes.wake(app, id, in_trouble || matches!(phase, Phase::Ready | Phase::Failed | Phase::Gone));
        if phase == Phase::Gone {
            app.retire.send();
        }
    }
}

/// Wakes workflows by binding, at once or a little later. A crash loses nothing: after it the feed starts again.
struct BindingWakes {
    decisive: Arc<WakeBatch>,
    progress: Arc<WakeBatch>,
}

/// Delivers the first `at_once` wakes at once and the others together, `period` after the first.
struct WakeBatch {
    period: Duration,
    at_once: usize,
    pending: Mutex<PendingWakes>,
}

#[derive(Default)]
struct PendingWakes {
    delivered: usize,
    waiting: HashSet<Uuid>,
}

impl PendingWakes {
    /// Adds a wake. Returns true if it is to be delivered now.
    fn add(&mut self, id: Uuid, at_once: usize) -> bool {
        let now = self.delivered < at_once;
        if now {
            self.delivered += 1;
            self.waiting.remove(&id);
        } else {
            self.waiting.insert(id);
        }
        now
    }
}

impl WakeBatch {
    fn new(period: Duration, at_once: usize) -> Arc<Self> {
        Arc::new(Self { period, at_once, pending: Mutex::default() })
    }

    fn wake(self: &Arc<Self>, app: &App, id: Uuid) {
        let mut pending = self.pending();
        let first = pending.delivered == 0 && pending.waiting.is_empty();
        if pending.add(id, self.at_once) {
            app.engine.wake(&binding_key(id));
        }
        if first {
            let (batch, app) = (self.clone(), app.clone());
            tokio::spawn(async move {
                tokio::time::sleep(batch.period).await;
                let pending = std::mem::take(&mut *batch.pending());
                for id in pending.waiting {
                    app.engine.wake(&binding_key(id));
                }
            });
        }
    }

    fn pending(&self) -> MutexGuard<'_, PendingWakes> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for BindingWakes {
    fn default() -> Self {
        Self { decisive: WakeBatch::new(DECISIVE_PERIOD, AT_ONCE), progress: WakeBatch::new(PROGRESS_PERIOD, 0) }
    }
}

impl BindingWakes {
    fn wake(&self, app: &App, id: Uuid, decisive: bool) {
        if decisive {
            self.progress.pending().waiting.remove(&id);
            self.decisive.wake(app, id);
        } else {
            self.progress.wake(app, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_beyond_the_first_few_are_collected() {
        let mut pending = PendingWakes::default();
        let [a, b, c] = [1, 2, 3].map(Uuid::from_u128);
        assert!(pending.add(a, 2) && pending.add(b, 2) && pending.waiting.is_empty(), "what was delivered is not collected");
        assert!(!pending.add(c, 2) && !pending.add(a, 2));
        assert_eq!(pending.waiting, HashSet::from([a, c]));
        assert!(!PendingWakes::default().add(a, 0));
    }
}
