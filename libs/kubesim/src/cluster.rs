//! One simulated cluster: its state behind a lock, and the ways by which requests, timers and tests reach it.
//!
//! The state is changed only inside [`Cluster::with`]; before it returns, the driver hands the changes to controllers, and
//! watches are woken. No task belongs to a cluster, so an idle one costs only its memory.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;

use crate::clock::Clock;
use crate::driver;
use crate::faults::Faults;
use crate::state::{ClusterState, Settings};
use crate::timers::{OnTimer, Timer, Timers};

/// A cluster.
pub struct Cluster {
    pub faults: Faults,
    pub token: Mutex<String>,
    /// Requests without a token are served.
    pub anonymous: bool,
    state: Mutex<ClusterState>,
    revision: watch::Sender<u64>,
    timers: Arc<Timers>,
    me: Weak<Cluster>,
}

impl Cluster {
    pub fn new(token: String, anonymous: bool, settings: Settings, clock: Clock, timers: Arc<Timers>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            faults: Faults::default(),
            token: Mutex::new(token),
            anonymous,
            state: Mutex::new(ClusterState::new(settings, clock)),
            revision: watch::Sender::new(1),
            timers,
            me: me.clone(),
        })
    }

    /// Runs `f` on the state, alone, then wakes who waits for it.
    pub fn with<T>(&self, f: impl FnOnce(&mut ClusterState) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let out = f(&mut state);
        driver::follow_up(&mut state);
        let (timers, revision) = (state.take_timers(), state.store.revision());
        drop(state);
        for (delay, timer) in timers {
            self.timers.add(self.me.clone(), delay, timer);
        }
        self.revision.send_if_modified(|known| std::mem::replace(known, revision) != revision);
        out
    }

    /// Changes whenever the cluster does.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }
}

impl OnTimer for Cluster {
    fn on_timer(&self, timer: Timer) {
        self.with(|state| driver::run(state, timer));
    }
}
