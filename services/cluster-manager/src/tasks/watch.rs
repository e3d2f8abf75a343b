//! The worker of one member: watches its nodes and pods, probes it, reads its metrics and reports all of it to [`Fleet`](crate::app::Fleet).
//!
//! ```text
//! connect ─▶ probe ─▶ watch nodes, pods ─▶ Ready ─┬─ a change: capacity is computed and published after a short pause
//!    ▲                                            ├─ a successful probe: published again with age zero
//!    └────────── back-off with jitter ◀── failure ┘
//! ```
//! The age of a capacity is the time since the last successful probe. A watch that cannot continue ends the session, so that an
//! outdated list is never published as current.

use std::sync::Arc;
use std::time::Duration;

use drover_members::kubeconfig::vet;
use drover_members::trimmed::{Node, Pod};
use drover_scheduling::{MemberKey, MemberState};
use drover_service::{TaskHandle, backoff};
use futures::{StreamExt, pin_mut};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep_until};

use super::{metrics, reports, storage};
use crate::app::{App, Measured, Model};
use crate::probe::{Failure, identity, probe, watch_failure};
use crate::store::registered::Registered;

/// Changes come in bursts; capacity is computed once per burst.
const GATHER: Duration = Duration::from_millis(100);
/// Added to [`GATHER`] per binding: capacity is published as a whole, and the cost per second must not grow with the number of bindings.
const GATHER_EACH: Duration = Duration::from_millis(5);
/// Capacity is published again after this time without a change, so that readers know its age.
const RETELL: Duration = Duration::from_secs(9);
/// Time limit of the first lists of nodes and pods; a slower member counts as unreachable.
const FIRST_LISTS: Duration = Duration::from_secs(30);
/// Everything is listed again after this time, give or take 20 %, in case the connection of a watch died unnoticed.
const RENEW: Duration = Duration::from_secs(900);
/// The longest pause between two attempts.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// Runs until the supervisor drops it: the member was deregistered or its kubeconfig changed.
pub async fn run(app: App, member: Registered, task: TaskHandle) {
    let key = member.key();
    if member.credential.is_none() {
        app.fleet.set_state(&key, member.id, MemberState::Unknown, Some("the cluster has no kubeconfig".to_owned()));
        return std::future::pending().await;
    }
    let mut failures = 0;
    loop {
        task.active();
        let started = Instant::now();
        let failure = match connect(&app, &member, &key).await {
            Ok(client) => Session { app: &app, member: &member, key: &key, task: &task, client }.run().await,
            Err(failure) => Some(failure),
        };
        let Some(mut failure) = failure else { continue };
        if member.linked && !app.links.has(member.id) {
            failure.reason = "its agent is not connected; `drover cluster accept` says how far its link is".to_owned();
        }
        // A session that lasted longer than this connected: the back-off starts again.
        failures = if started.elapsed() > FIRST_LISTS { 1 } else { failures + 1 };
        if let Some(detail) = failure.detail.filter(|_| failures == 1) {
            tracing::warn!(member = %key, detail, "a member has failed");
        }
        app.fleet.set_state(&key, member.id, failure.state, Some(failure.reason));
        app.fleet.publish_aged(&key);
        tokio::select! {
            () = tokio::time::sleep(backoff(failures + 1, LONGEST_BACKOFF)) => {}
            () = app.links.connected(member.id), if member.linked && !app.links.has(member.id) => {}
        }
    }
}

async fn connect(app: &App, member: &Registered, key: &MemberKey) -> Result<Client, Failure> {
    let version = member.credential.unwrap_or_default();
    if let Some(client) = app.clients.cached(key, version).await {
        return Ok(client);
    }
    let unknown = |reason: String| Failure::unknown(reason);
    let credential =
        app.credential(key).await.map_err(|problem| unknown(format!("the kubeconfig cannot be read: {}", problem.document().detail)))?;
    let vetted = vet(credential.kubeconfig.expose()).map_err(|error| unknown(format!("the kubeconfig cannot be used: {error}")))?;
    let vetted = vetted.linked(credential.linked);
    app.clients.get(key, credential.version, &vetted).await.map_err(|error| unknown(format!("the kubeconfig cannot be used: {error}")))
}

struct Session<'a> {
    app: &'a App,
    member: &'a Registered,
    key: &'a MemberKey,
    task: &'a TaskHandle,
    client: Client,
}

impl Session<'_> {
    /// Follows the member until something fails; `None` after [`RENEW`], when everything is to be listed again.
    async fn run(&self) -> Option<Failure> {
        if let Err(failure) = probe(&self.client).await {
            return Some(failure);
        }
        if let Some(failure) = self.recognise().await {
            return Some(failure);
        }
        let doubt = Notify::new();
        let (alive, beats) = watch::channel(());
        let (measured, usage) = watch::channel(Measured::default());
        tokio::select! {
            failure = self.probe_periodically(&doubt, &alive) => Some(failure),
            never = self.measure(&measured) => never,
            failure = self.follow(&doubt, beats, usage) => Some(failure),
            () = tokio::time::sleep(RENEW.mul_f64(rand::random_range(0.8..1.2))) => None,
        }
    }

    /// Fails if the member is the same Kubernetes cluster as another member: its room would be given away twice.
    async fn recognise(&self) -> Option<Failure> {
        let uid = identity(&self.client).await?;
        match self.app.identify(self.member.id, &uid).await {
            Ok(same) => {
                let same = same?;
                Some(Failure::unreachable(format!("not used, because it is the same Kubernetes cluster as {same}: remove one of the two")))
            }
            Err(error) => {
                tracing::warn!(member = %self.key, %error, "it cannot be checked whether the cluster is registered twice");
                None
            }
        }
    }

    /// Probes once per period, and at once when a watch was interrupted. Returns the failure of two probes in a row.
    async fn probe_periodically(&self, doubt: &Notify, alive: &watch::Sender<()>) -> Failure {
        loop {
            let _ = tokio::time::timeout(self.app.config.heartbeat(), doubt.notified()).await;
            // The second probe tells an outage from a single lost packet.
            if probe(&self.client).await.is_err()
                && let Err(failure) = probe(&self.client).await
            {
                return failure;
            }
            alive.send_replace(());
            self.task.active();
        }
    }

    async fn measure<T>(&self, measured: &watch::Sender<Measured>) -> T {
        let mut ticks = tokio::time::interval(self.app.config.metrics());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Boxed, so that the future takes no memory between two ticks.
            let (usage, storage) = Box::pin(async { tokio::join!(metrics::read(&self.client), storage::read(&self.client)) }).await;
            measured.send_replace(Measured { usage, storage: storage.map(Arc::new) });
            if self.app.fleet.wants_reports()
                && let Some(reports) = Box::pin(reports::read(&self.client)).await
            {
                self.app.fleet.set_reports(self.key, self.member.id, reports);
            }
        }
    }

    async fn follow(&self, doubt: &Notify, mut beats: watch::Receiver<()>, mut usage: watch::Receiver<Measured>) -> Failure {
        let mut listing = Some(self.app.clients.turn_to_list().await);
        let nodes = watcher(Api::<Node>::all(self.client.clone()), watcher::Config::default()).default_backoff();
        let pods = watcher(Api::<Pod>::all(self.client.clone()), watcher::Config::default()).default_backoff();
        pin_mut!(nodes, pods);
        let (mut model, mut published) = (Model::default(), None::<Instant>);
        let (mut publish_at, mut gather) = (None::<Instant>, Duration::ZERO);
        let give_up = Instant::now() + FIRST_LISTS;
        loop {
            let wake = publish_at.unwrap_or(give_up);
            tokio::select! {
                event = nodes.next() => match event {
                    Some(Ok(event)) => model.node(event),
                    Some(Err(error)) => match watch_failure(error, "nodes") { Some(failure) => return failure, None => { doubt.notify_one(); continue } },
                    None => return Failure::unreachable("the watch of nodes ended"),
                },
                event = pods.next() => match event {
                    Some(Ok(event)) => model.pod(event),
                    Some(Err(error)) => match watch_failure(error, "pods") { Some(failure) => return failure, None => { doubt.notify_one(); continue } },
                    None => return Failure::unreachable("the watch of pods ended"),
                },
                Ok(()) = usage.changed() => {}
                Ok(()) = beats.changed() => if published.is_some_and(|at| at.elapsed() < RETELL.min(self.app.config.heartbeat() * 2)) { continue },
                () = sleep_until(wake), if publish_at.is_some() || !model.complete() => {
                    if !model.complete() {
                        return Failure::unreachable(format!("nodes and pods could not be listed within {} s", FIRST_LISTS.as_secs()));
                    }
                    let capacity = model.capacity(&usage.borrow(), jiff::Timestamp::now());
                    gather = GATHER + GATHER_EACH * u32::try_from(capacity.observed.len()).unwrap_or(u32::MAX);
                    self.app.fleet.set_capacity(self.key, self.member.id, capacity);
                    // Capacity before the state: a reader that sees the member ready finds its capacity.
                    self.app.fleet.set_state(self.key, self.member.id, MemberState::Ready, None);
                    (published, publish_at) = (Some(Instant::now()), None);
                    continue;
                }
            }
            if model.complete() {
                drop(listing.take());
                publish_at.get_or_insert_with(|| Instant::now() + gather);
            }
        }
    }
}
