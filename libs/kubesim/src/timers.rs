//! One heap of delays for all clusters of a simulator, and the task that runs what is due.
//!
//! Time is tokio's, so a test under `tokio::time::pause` runs in virtual time. Nothing here polls: the task sleeps until
//! the nearest deadline or until somebody adds a nearer one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::key::Key;

/// What happens when a delay is over. Each names its subject by uid, so a late timer cannot hit a successor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Timer {
    /// Controllers run over what changed.
    Reconcile,
    /// One object is looked at again.
    Revisit(Key),
    /// A step in the life of a pod.
    Pod { key: Key, uid: String, step: PodStep },
    /// The log forgets.
    Trim,
}

/// What the kubelet does to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodStep {
    /// Containers run and are ready.
    Start,
    /// Containers end well.
    Complete,
    /// Containers end badly.
    Crash,
    /// Readiness toggles.
    Flap,
    /// Nothing is left of it.
    Stop,
}

/// What timers are for.
pub trait OnTimer: Send + Sync {
    /// The delay of this timer is over.
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

/// The heap.
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

    /// The next due entry, or when to look again.
    fn pop(&self) -> Result<Entry, Option<Instant>> {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        match heap.0.peek() {
            Some(Reverse(first)) if first.at <= Instant::now() => Ok(heap.0.pop().expect("peeked above").0),
            Some(Reverse(first)) => Err(Some(first.at)),
            None => Err(None),
        }
    }

    /// Runs until the last owner of the heap but this task is gone.
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
                        // Thousands of clusters due at once must not starve those who read from them.
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
