//! Follows the synchronizer's feed `bindings`: keeps the latest status of each binding and wakes the workflows parked on it.
//!
//! A workflow that is woken runs several SQL statements. So a status wakes its workflow at once only if it may end the wait or start
//! or end a deadline, and only the first few do within a short time. Of copies that are awaited together only the last one that becomes
//! ready may end the wait. The other statuses are delivered together, and so are mere progress reports, which are most of what a cluster
//! sends: of those only so many are delivered in a second.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::bindings::{BindingStatus, Phase};
use drover_service::FeedReader;
use uuid::Uuid;

use crate::app::App;
use crate::environment::binding_key;
use crate::statuses::News;

/// Statuses that follow others within this time are fetched with one request. A cluster that starts pods changes many statuses in quick
/// succession; a request for each would take more CPU time than the statuses. A status after a pause is fetched at once.
const GATHER: Duration = Duration::from_millis(25);
/// For how long wakes that may end a wait are collected.
const DECISIVE_PERIOD: Duration = Duration::from_millis(200);
/// How many of them are delivered at once within that time.
const AT_ONCE: usize = 3;
/// For how long wakes about mere progress are collected. Progress is only shown to users; apps that wait for others look by themselves.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);
/// How many of them are delivered after it, those first that wait the longest.
const PROGRESS_AT_ONCE: usize = 10;

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
        tokio::time::sleep(GATHER).await;
    }
}

/// Stores the statuses of a batch and wakes the workflows that wait for them.
fn store(app: &App, wakes: &BindingWakes, items: Vec<(String, Option<BindingStatus>)>) {
    for (key, status) in items {
        let Ok(id) = key.parse::<Uuid>() else { continue };
        let phase = status.as_ref().map_or(Phase::Gone, |status| status.phase);
        let news = app.environment.statuses.set(id, status);
        wakes.wake(app, id, news);
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

/// Delivers the first `at_once` wakes at once and the others together, `period` after the first, but not more than `at_most`; the rest one
/// period later.
struct WakeBatch {
    period: Duration,
    at_once: usize,
    at_most: usize,
    pending: Mutex<PendingWakes>,
}

#[derive(Default)]
struct PendingWakes {
    /// How many were delivered at once in this period.
    delivered: usize,
    waiting: HashSet<Uuid>,
    /// Those of `waiting` in the order in which they came, and some that were taken back.
    order: VecDeque<Uuid>,
    /// Whether a delivery is to come.
    scheduled: bool,
}

impl PendingWakes {
    /// Adds a wake. Returns true if it is to be delivered now.
    fn add(&mut self, id: Uuid, at_once: usize) -> bool {
        let now = self.delivered < at_once;
        if now {
            self.delivered += 1;
            self.waiting.remove(&id);
        } else {
            self.push(id);
        }
        now
    }

    fn push(&mut self, id: Uuid) {
        if self.waiting.insert(id) {
            self.order.push_back(id);
        }
        if self.order.len() > 2 * self.waiting.len() {
            let mut seen = HashSet::new();
            self.order.retain(|id| self.waiting.contains(id) && seen.insert(*id));
        }
    }

    fn pop(&mut self) -> Option<Uuid> {
        loop {
            let id = self.order.pop_front()?;
            if self.waiting.remove(&id) {
                return Some(id);
            }
        }
    }

    /// The wakes to be delivered at the end of a period.
    fn take(&mut self, at_most: usize) -> Vec<Uuid> {
        let due = std::iter::from_fn(|| self.pop()).take(at_most).collect();
        self.delivered = 0;
        self.scheduled = !self.waiting.is_empty();
        due
    }
}

impl WakeBatch {
    fn new(period: Duration, at_once: usize, at_most: usize) -> Arc<Self> {
        Arc::new(Self { period, at_once, at_most, pending: Mutex::default() })
    }

    fn wake(self: &Arc<Self>, app: &App, id: Uuid) {
        let mut pending = self.pending();
        if pending.add(id, self.at_once) {
            app.engine.wake(&binding_key(id));
        }
        if !std::mem::replace(&mut pending.scheduled, true) {
            tokio::spawn(self.clone().deliver(app.clone()));
        }
    }

    /// Whether another one would have to wait for longer than a period.
    fn is_full(&self) -> bool {
        self.pending().waiting.len() >= self.at_most
    }

    /// Delivers what waits, period by period, until nothing does.
    async fn deliver(self: Arc<Self>, app: App) {
        loop {
            tokio::time::sleep(self.period).await;
            let (due, more) = {
                let mut pending = self.pending();
                (pending.take(self.at_most), pending.scheduled)
            };
            due.into_iter().for_each(|id| app.engine.wake(&binding_key(id)));
            if !more {
                return;
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, PendingWakes> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for BindingWakes {
    fn default() -> Self {
        let decisive = WakeBatch::new(DECISIVE_PERIOD, AT_ONCE, usize::MAX);
        Self { decisive, progress: WakeBatch::new(PROGRESS_PERIOD, 0, PROGRESS_AT_ONCE) }
    }
}

impl BindingWakes {
    fn wake(&self, app: &App, id: Uuid, news: News) {
        match news {
            News::Decisive => {
                self.progress.pending().waiting.remove(&id);
                self.decisive.wake(app, id);
            }
            // Nothing decisive follows for this copy, which would take it out of the queue: it is shown only while the queue is short.
            News::ReadyBeforeOthers if self.progress.is_full() => drop(self.progress.pending().waiting.remove(&id)),
            News::ReadyBeforeOthers | News::Progress => self.progress.wake(app, id),
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
        assert_eq!(pending.take(usize::MAX), [c, a]);
        assert!(pending.add(b, 2), "another period has begun");
        assert!(!PendingWakes::default().add(a, 0));
    }

    #[test]
    fn collected_wakes_are_delivered_in_their_order_and_so_many_at_a_time() {
        let mut pending = PendingWakes::default();
        let [a, b, c, d] = [1, 2, 3, 4].map(Uuid::from_u128);
        for id in [a, b, c, a, d] {
            assert!(!pending.add(id, 0));
        }
        pending.waiting.remove(&b);
        assert_eq!(pending.take(2), [a, c], "each once, and not what was taken back");
        assert!(pending.scheduled, "one is left");
        assert!(!pending.add(a, 0));
        assert_eq!(pending.take(2), [d, a]);
        assert!(!pending.scheduled);
    }

    #[test]
    fn batch_is_full_when_one_period_delivers_no_more() {
        let batch = WakeBatch::new(Duration::ZERO, 0, 2);
        let [a, b] = [1, 2].map(Uuid::from_u128);
        batch.pending().push(a);
        batch.pending().push(a);
        assert!(!batch.is_full());
        batch.pending().push(b);
        assert!(batch.is_full());
        assert_eq!(batch.pending().take(2), [a, b]);
        assert!(!batch.is_full());
    }

    #[test]
    fn queue_does_not_grow_by_wakes_that_are_taken_back() {
        let mut pending = PendingWakes::default();
        let ids: Vec<_> = (0..3).map(Uuid::from_u128).collect();
        for turn in 0..1_000 {
            let id = ids[turn % ids.len()];
            pending.waiting.remove(&id);
            pending.push(id);
        }
        assert!(pending.order.len() <= 2 * ids.len(), "{}", pending.order.len());
        let taken: HashSet<_> = pending.take(usize::MAX).into_iter().collect();
        assert_eq!(taken, ids.into_iter().collect());
    }
}
