//! The pods of one app as an activator uses them: each is asked whether it is ready before it gets a request, however the API server sees it.
//!
//! That is sooner than the kubelet's own probe tells (its shortest period is 1 s), and later than Kubernetes says where the network is not
//! there yet. Invariant: only a pod that said so itself, and has not failed since, is a place of the room.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use drover_autoscaling::kpa::capacity;
use tokio::time::Instant;

use super::catalogue::App;
use crate::path::probe::Probe;
use crate::path::room::{Room, UNLIMITED};

/// Wait between two questions to a pod that starts.
const OFTEN: Duration = Duration::from_millis(50);
/// The same to one that does not seem to start.
const RARELY: Duration = Duration::from_secs(1);
/// When the one becomes the other.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// Where a sidecar says whether its app is ready.
const READY: &str = "/ready";

/// The pods of one app.
#[derive(Debug)]
pub struct Backends {
    room: Arc<Room>,
    me: IpAddr,
    probe: Probe,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    app: App,
    proven: BTreeSet<SocketAddr>,
    asked: BTreeSet<SocketAddr>,
}

impl Backends {
    /// None yet.
    pub fn new(room: Arc<Room>, me: IpAddr) -> Arc<Self> {
        Arc::new(Self { room, me, probe: Probe::new(Some(READY.to_owned())), state: Mutex::default() })
    }

    /// What the API server says now.
    pub fn set(self: &Arc<Self>, app: App) {
        let mut state = self.state();
        state.proven.retain(|pod| app.pods.contains_key(pod));
        state.app = app;
        self.changed(state);
    }

    /// A pod did not take a request: it gets none until it says again that it is ready.
    pub fn suspect(self: &Arc<Self>, pod: SocketAddr) {
        let mut state = self.state();
        state.proven.remove(&pod);
        self.changed(state);
    }

    fn changed(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let unproven: Vec<SocketAddr> = state.app.pods.keys().filter(|pod| !state.proven.contains(pod)).copied().collect();
        for pod in unproven {
            if state.asked.insert(pod) {
                tokio::spawn(ask(Arc::downgrade(self), self.probe.clone(), pod));
            }
        }
        let capacity = if state.app.container_concurrency == 0 { UNLIMITED } else { state.app.container_concurrency };
        let proven: Vec<SocketAddr> = state.proven.iter().copied().collect();
        // Below the state's lock, so that an older list never follows a newer one.
        self.room.furnish(share(&proven, &state.app.activators, self.me).into_iter().map(|pod| (pod, capacity)));
    }

    /// Where to ask a pod that has not said that it is ready; none: no need to.
    fn still_unproven(&self, pod: SocketAddr) -> Option<SocketAddr> {
        let mut state = self.state();
        let admin = state.app.pods.get(&pod).copied().filter(|_| !state.proven.contains(&pod));
        if admin.is_none() {
            state.asked.remove(&pod);
        }
        admin
    }

    fn proven(self: &Arc<Self>, pod: SocketAddr) {
        let mut state = self.state();
        state.asked.remove(&pod);
        if state.app.pods.contains_key(&pod) {
            state.proven.insert(pod);
        }
        self.changed(state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks a pod until it is ready, or gone.
async fn ask(backends: Weak<Backends>, probe: Probe, pod: SocketAddr) {
    let began = Instant::now();
    loop {
        let Some(admin) = backends.upgrade().and_then(|backends| backends.still_unproven(pod)) else { return };
        if probe.ask(admin).await.is_ok() {
            if let Some(backends) = backends.upgrade() {
                backends.proven(pod);
            }
            return;
        }
        tokio::time::sleep(if began.elapsed() < STARTS_WITHIN { OFTEN } else { RARELY }).await;
    }
}

/// The pods that are mine: activators deal them out, so that together they do not promise a pod's room twice. One that is not (or no
/// longer) on the list serves who still comes with all of them.
pub fn share(pods: &[SocketAddr], activators: &[IpAddr], me: IpAddr) -> Vec<SocketAddr> {
    let Some(index) = activators.iter().position(|activator| *activator == me) else { return pods.to_vec() };
    let share = capacity::share(pods.len(), activators.len(), index);
    let mut mine = pods[share.begin..share.end].to_vec();
    if index < share.remnants {
        mine.push(pods[pods.len() - share.remnants + index]);
    }
    mine
}
