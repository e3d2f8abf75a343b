//! Follows the synchronizer's feed `bindings`: keeps the latest status of each binding and wakes the workflows parked on it.
//!
//! A workflow that is woken runs several SQL statements. So a status wakes its workflow at once only if it may end the wait or start
//! a deadline, and only the first few do within a short time. The others are delivered together, and so are mere progress
//! reports, which are most of what a cluster sends: of those only so many are delivered in a second.

use std::collections::{HashSet, VecDeque};
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
/// For how long wakes about mere progress are collected. Progress is only shown to users; apps that wait for others look by themselves.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);
/// How many of them are delivered after it: those first that say that a binding is applied, then those that wait the longest.
const PROGRESS_AT_ONCE: usize = 40;

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
        let in_trouble = status.as_ref().is_some_and(is_in_trouble);
        let before = app.environment.statuses.get(id);
        let was_in_trouble = before.as_deref().is_some_and(is_in_trouble);
        let was_applied = before.is_some_and(|status| status.phase == Phase::Applied);
        app.environment.statuses.set(id, status);
        let news = match phase {
            Phase::Ready | Phase::Failed | Phase::Gone => News::Decisive,
            // The end of trouble too: it ends a deadline.
            _ if in_trouble || was_in_trouble => News::Decisive,
            Phase::Applied if !was_applied => News::Applied,
            _ => News::Progress,
        };
        wakes.wake(app, id, news);
        if phase == Phase::Gone {
            app.retire.send();
        }
    }
}

/// Whether a deadline runs for it.
fn is_in_trouble(status: &BindingStatus) -> bool {
    status.phase == Phase::Unreachable || status.unschedulable.is_some()
}

/// What a status says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum News {
    /// It may end a wait, or start or end a deadline.
    Decisive,
    /// Apps may wait for this one to be applied.
    Applied,
    Progress,
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
    /// Those that come before the others.
    first: WakeQueue,
    others: WakeQueue,
    /// Whether a delivery is to come.
    scheduled: bool,
}

/// Wakes in the order in which they came, each once.
#[derive(Default)]
struct WakeQueue {
    waiting: HashSet<Uuid>,
    /// Also some that were removed from `waiting`.
    order: VecDeque<Uuid>,
}

impl WakeQueue {
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
}

impl PendingWakes {
    /// Adds a wake, before others if it comes `first`. Returns true if it is to be delivered now.
    fn add(&mut self, id: Uuid, at_once: usize, first: bool) -> bool {
        let now = self.delivered < at_once;
        if now {
            self.delivered += 1;
            self.remove(id);
        } else if first {
            self.others.waiting.remove(&id);
            self.first.push(id);
        } else if !self.first.waiting.contains(&id) {
            self.others.push(id);
        }
        now
    }

    fn remove(&mut self, id: Uuid) {
        self.first.waiting.remove(&id);
        self.others.waiting.remove(&id);
    }

    /// The wakes to be delivered at the end of a period.
    fn take(&mut self, at_most: usize) -> Vec<Uuid> {
        let due = std::iter::from_fn(|| self.first.pop().or_else(|| self.others.pop())).take(at_most).collect();
        self.delivered = 0;
        self.scheduled = !(self.first.waiting.is_empty() && self.others.waiting.is_empty());
        due
    }
}

impl WakeBatch {
    fn new(period: Duration, at_once: usize, at_most: usize) -> Arc<Self> {
        Arc::new(Self { period, at_once, at_most, pending: Mutex::default() })
    }

    fn wake(self: &Arc<Self>, app: &App, id: Uuid, first: bool) {
        let mut pending = self.pending();
        if pending.add(id, self.at_once, first) {
            app.engine.wake(&binding_key(id));
        }
        if !std::mem::replace(&mut pending.scheduled, true) {
            tokio::spawn(self.clone().deliver(app.clone()));
        }
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
        if news == News::Decisive {
            self.progress.pending().remove(id);
            self.decisive.wake(app, id, false);
        } else {
            self.progress.wake(app, id, news == News::Applied);
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
        assert!(
            pending.add(a, 2, false) && pending.add(b, 2, false) && pending.others.order.is_empty(),
            "delivered ones are not collected"
        );
        assert!(!pending.add(c, 2, false) && !pending.add(a, 2, false));
        assert_eq!(pending.take(usize::MAX), [c, a]);
        assert!(pending.add(b, 2, false), "another period has begun");
        assert!(!PendingWakes::default().add(a, 0, false));
    }

    #[test]
    fn collected_wakes_are_delivered_in_their_order_and_so_many_at_a_time() {
        let mut pending = PendingWakes::default();
        let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(Uuid::from_u128);
        for id in [a, b, c, a, d] {
            assert!(!pending.add(id, 0, false));
        }
        pending.remove(b);
        assert!(!pending.add(e, 0, true) && !pending.add(c, 0, true) && !pending.add(c, 0, false));
        assert_eq!(pending.take(3), [e, c, a], "those that come first, and each once");
        assert!(pending.scheduled, "one is left");
        assert!(!pending.add(a, 0, false));
        assert_eq!(pending.take(3), [d, a]);
        assert!(!pending.scheduled);
    }

    #[test]
    fn queue_does_not_grow_by_wakes_that_are_taken_back() {
        let mut queue = WakeQueue::default();
        let ids: Vec<_> = (0..3).map(Uuid::from_u128).collect();
        for turn in 0..1_000 {
            let id = ids[turn % ids.len()];
            queue.waiting.remove(&id);
            queue.push(id);
        }
        assert!(queue.order.len() <= 2 * ids.len(), "{}", queue.order.len());
        let taken: HashSet<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(taken, ids.into_iter().collect());
    }
}
