//! One heap of timers for all clusters of a simulator, and the task that runs those that are due.
//!
//! Time is tokio's, so a test under `tokio::time::pause` runs in virtual time. Nothing here polls: the task sleeps until
//! the nearest deadline or until a nearer one is added.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::key::Key;

/// What happens when a delay is over. A timer for a pod has its uid, so that it does not concern a later pod of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Timer {
    /// Controllers, garbage collection and scheduler do their work.
    Reconcile,
    /// The controller of one object runs again.
    Revisit(Key),
    /// The kubelet changes a pod.
    Pod { key: Key, uid: String, step: PodStep },
    /// Old changes leave the log.
    Trim,
}

/// What the kubelet does to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodStep {
    /// Its containers run and get ready.
    Start,
    /// Its containers get ready, after a delay of their own.
    Ready,
    /// Its containers succeed.
    Complete,
    /// Its containers fail.
    Crash,
    /// Its readiness toggles.
    Flap,
    /// It is removed.
    Stop,
}

/// Something that timers belong to.
pub trait OnTimer: Send + Sync {
    /// Called when the delay of a timer is over.
    fn on_timer(&self, timer: Timer);
}

struct Entry {
    at: Instant,
    order: u64,
    cluster: Weak<dyn OnTimer>,
    timer: Timer,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The timers of all clusters.
#[derive(Default)]
pub struct Timers {
    heap: Mutex<(BinaryHeap<Reverse<Entry>>, u64)>,
    nearer: Notify,
}

impl Timers {
    pub fn add(&self, cluster: Weak<dyn OnTimer>, delay: Duration, timer: Timer) {
        let at = Instant::now() + delay;
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        heap.1 += 1;
        let order = heap.1;
        let nearest = heap.0.peek().is_none_or(|Reverse(first)| at < first.at);
        heap.0.push(Reverse(Entry { at, order, cluster, timer }));
        drop(heap);
        if nearest {
            self.nearer.notify_one();
        }
    }

    /// The next due entry; if none is due, the time of the next one.
    fn pop(&self) -> Result<Entry, Option<Instant>> {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        match heap.0.peek() {
            Some(Reverse(first)) if first.at <= Instant::now() => Ok(heap.0.pop().expect("peeked above").0),
            Some(Reverse(first)) => Err(Some(first.at)),
            None => Err(None),
        }
    }

    /// Runs timers when they are due. Never returns; the simulator aborts the task.
    pub async fn run(self: Arc<Self>) {
        let mut done = 0u32;
        loop {
            match self.pop() {
                Ok(entry) => {
                    if let Some(cluster) = entry.cluster.upgrade() {
                        cluster.on_timer(entry.timer);
                    }
                    done += 1;
                    if done.is_multiple_of(32) {
                        // Timers of thousands of clusters that are due at once must not starve the readers.
                        tokio::task::yield_now().await;
                    }
                }
                Err(Some(at)) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.nearer.notified() => {}
                },
                Err(None) => self.nearer.notified().await,
            }
        }
    }
}
