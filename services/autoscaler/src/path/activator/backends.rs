//! The pods of one app in an activator. A pod gets requests only after it answered the activator's own probe, whatever the API server says.
//!
//! This is sooner than the kubelet's own probe, whose shortest period is 1 s, and later than Kubernetes' state where the network is not
//! ready yet. Invariant: only a pod that answered the probe, and has not failed since, is a destination of the throttler.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use drover_autoscaling::kpa::capacity;
use drover_tasks::{OnFailure, Tasks};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::catalogue::App;
use crate::path::probe::Probe;
use crate::path::throttler::{Throttler, UNLIMITED};

/// Maximum number of requests that wait for one app (Knative's revision throttler).
const QUEUE: usize = 10_000;
/// Wait between two probes of a pod that starts.
const OFTEN: Duration = Duration::from_millis(50);
/// Wait between two probes of a pod that has not started within [`STARTS_WITHIN`].
const RARELY: Duration = Duration::from_secs(1);
/// Time after which a pod is probed less often.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// Path at which a sidecar says whether its app is ready.
const READY: &str = "/ready";

/// The pods of one app.
#[derive(Debug)]
pub struct Backends {
    /// The waiting requests, and the pods that take them.
    pub throttler: Arc<Throttler>,
    tasks: Tasks,
    me: IpAddr,
    probe: Probe,
    state: Mutex<BackendsState>,
}

#[derive(Debug, Default)]
struct BackendsState {
    app: App,
    proven: BTreeSet<SocketAddr>,
    asked: BTreeSet<SocketAddr>,
}

impl Backends {
    /// Creates the pods of an app; there are none yet.
    pub fn new(me: IpAddr, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self { throttler: Throttler::new(QUEUE), tasks, me, probe: Probe::new(Some(READY.to_owned())), state: Mutex::default() })
    }

    /// Applies the state of the API server.
    pub fn set(self: &Arc<Self>, app: App) {
        let mut state = self.state();
        state.proven.retain(|pod| app.pods.contains_key(pod));
        state.app = app;
        self.changed(state);
    }

    /// Stops using a pod that did not accept a request, until it answers the probe again.
    pub fn suspect(self: &Arc<Self>, pod: SocketAddr) {
        let mut state = self.state();
        state.proven.remove(&pod);
        self.changed(state);
    }

    fn changed(self: &Arc<Self>, mut state: MutexGuard<'_, BackendsState>) {
        let unproven: Vec<SocketAddr> = state.app.pods.keys().filter(|pod| !state.proven.contains(pod)).copied().collect();
        for pod in unproven {
            if state.asked.insert(pod) {
                let (backends, probe, never) = (Arc::downgrade(self), self.probe.clone(), CancellationToken::new());
                self.tasks.spawn(&TaskTracker::new(), never, format!("probe/{pod}"), OnFailure::RestartOneOfMany, move |_| {
                    ask(backends.clone(), probe.clone(), pod)
                });
            }
        }
        let capacity = if state.app.container_concurrency == 0 { UNLIMITED } else { state.app.container_concurrency };
        let proven: Vec<SocketAddr> = state.proven.iter().copied().collect();
        // Called while the state is locked, so that an older list never replaces a newer one.
        self.throttler.set_destinations(share(&proven, &state.app.activators, self.me).into_iter().map(|pod| (pod, capacity)));
    }

    /// The admin address of a pod that still has to be probed; none: no probe is needed.
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

    fn state(&self) -> MutexGuard<'_, BackendsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Probes a pod until it is ready or gone.
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

/// The pods of this activator. Activators divide the pods among themselves, so that they do not use a slot twice. An activator that is not (or no
/// longer) on the list uses all pods for the requests that still come.
pub fn share(pods: &[SocketAddr], activators: &[IpAddr], me: IpAddr) -> Vec<SocketAddr> {
    let Some(index) = activators.iter().position(|activator| *activator == me) else { return pods.to_vec() };
    let share = capacity::share(pods.len(), activators.len(), index);
    let mut mine = pods[share.begin..share.end].to_vec();
    if index < share.remnants {
        mine.push(pods[pods.len() - share.remnants + index]);
    }
    mine
}
