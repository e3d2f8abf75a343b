//! The worker of one member: watches nodes and pods, asks for signs of life, reads metrics, tells the fleet.
//!
//! ```text
//! connect ─▶ probe ─▶ watch nodes, pods ─▶ Ready ─┬─ a change: sums, told after a short pause
//!    ▲                                            ├─ a sign of life: age is zero again
//!    └────────── back-off with jitter ◀── failure ┘
//! ```
//! Knowledge is as old as the last sign of life. A watch that cannot go on ends the session, so a list is never shown
//! younger than it is.

use std::time::Duration;

use drover_members::kubeconfig::vet;
use drover_members::trimmed::{Node, Pod};
use drover_scheduling::{MemberKey, MemberState};
use drover_service::peer::backoff;
use futures::{StreamExt, pin_mut};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep_until};

use super::metrics;
use super::probe::{Failure, broken, probe};
use crate::app::{App, Model, Usage};
use crate::store::registered::Registered;

/// Changes come in bursts; the sums are made once for all of a burst.
const GATHER: Duration = Duration::from_millis(100);
/// So much longer per binding: the sums are told whole, and what that costs a second must not grow with the bindings.
const GATHER_EACH: Duration = Duration::from_millis(5);
/// Told again without any change, so that its age is known.
const RETELL: Duration = Duration::from_secs(9);
/// Both lists, or the member is too slow to be of use.
const FIRST_LISTS: Duration = Duration::from_secs(30);
/// A watch whose connection died silently is noticed by this at the latest: everything is listed again.
const RENEW: Duration = Duration::from_secs(900);
/// The longest pause between two attempts.
const PATIENCE: Duration = Duration::from_secs(10);

/// Until the member is deregistered or its kubeconfig changes.
pub async fn run(app: App, member: Registered) {
    let key = member.key();
    if member.credential.is_none() {
        app.fleet.found(&key, member.id, MemberState::Unknown, Some("it has no kubeconfig".to_owned()));
        return std::future::pending().await;
    }
    let mut failures = 0;
    loop {
        let started = Instant::now();
        let failure = match connect(&app, &member, &key).await {
            Ok(client) => Session { app: &app, member: &member, key: &key, client }.run().await,
            Err(failure) => Some(failure),
        };
        let Some(failure) = failure else { continue };
        // A session that held for a while is no failed attempt.
        failures = if started.elapsed() > FIRST_LISTS { 1 } else { failures + 1 };
        app.fleet.found(&key, member.id, failure.state, Some(failure.reason));
        app.fleet.age(&key);
        tokio::time::sleep(backoff(failures + 1, PATIENCE)).await;
    }
}

async fn connect(app: &App, member: &Registered, key: &MemberKey) -> Result<Client, Failure> {
    let version = member.credential.unwrap_or_default();
    if let Some(client) = app.clients.cached(key, version).await {
        return Ok(client);
    }
    let ours = |what: String| Failure { state: MemberState::Unknown, reason: what };
    let credential =
        app.credential(key).await.map_err(|problem| ours(format!("its kubeconfig cannot be read: {}", problem.document().detail)))?;
    let vetted = vet(credential.kubeconfig.expose()).map_err(|error| ours(format!("its kubeconfig cannot be used: {error}")))?;
    app.clients.get(key, credential.version, &vetted).await.map_err(|error| ours(format!("its kubeconfig cannot be used: {error}")))
}

struct Session<'a> {
    app: &'a App,
    member: &'a Registered,
    key: &'a MemberKey,
    client: Client,
}

impl Session<'_> {
    /// Follows the member until something fails, or (none) until it is time to list anew.
    async fn run(&self) -> Option<Failure> {
        if let Err(failure) = probe(&self.client).await {
            return Some(failure);
        }
        let doubt = Notify::new();
        let (alive, beats) = watch::channel(());
        let (measured, usage) = watch::channel(None);
        tokio::select! {
            failure = self.beat(&doubt, &alive) => Some(failure),
            never = self.measure(&measured) => never,
            failure = self.follow(&doubt, beats, usage) => Some(failure),
            () = tokio::time::sleep(RENEW.mul_f64(rand::random_range(0.8..1.2))) => None,
        }
    }

    /// A sign of life per period, and at once when a watch broke.
    async fn beat(&self, doubt: &Notify, alive: &watch::Sender<()>) -> Failure {
        loop {
            let _ = tokio::time::timeout(self.app.config.heartbeat(), doubt.notified()).await;
            // One lost packet is no outage: asked twice before the member counts as gone.
            if probe(&self.client).await.is_err()
                && let Err(failure) = probe(&self.client).await
            {
                return failure;
            }
            alive.send_replace(());
        }
    }

    async fn measure<T>(&self, measured: &watch::Sender<Option<Usage>>) -> T {
        let mut ticks = tokio::time::interval(self.app.config.metrics());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Boxed: between two ticks nobody keeps room for it.
            measured.send_replace(Box::pin(metrics::read(&self.client)).await);
        }
    }

    async fn follow(&self, doubt: &Notify, mut beats: watch::Receiver<()>, mut usage: watch::Receiver<Option<Usage>>) -> Failure {
        let mut listing = Some(self.app.clients.turn_to_list().await);
        let nodes = watcher(Api::<Node>::all(self.client.clone()), watcher::Config::default()).default_backoff();
        let pods = watcher(Api::<Pod>::all(self.client.clone()), watcher::Config::default()).default_backoff();
        pin_mut!(nodes, pods);
        let (mut model, mut told) = (Model::default(), None::<Instant>);
        let (mut tell_at, mut gather) = (None::<Instant>, Duration::ZERO);
        let give_up = Instant::now() + FIRST_LISTS;
        loop {
            let wake = tell_at.unwrap_or(give_up);
            tokio::select! {
                event = nodes.next() => match event {
                    Some(Ok(event)) => model.node(event),
                    Some(Err(error)) => match broken(error, "nodes") { Some(failure) => return failure, None => { doubt.notify_one(); continue } },
                    None => return Failure::unreachable("the watch of nodes ended"),
                },
                event = pods.next() => match event {
                    Some(Ok(event)) => model.pod(event),
                    Some(Err(error)) => match broken(error, "pods") { Some(failure) => return failure, None => { doubt.notify_one(); continue } },
                    None => return Failure::unreachable("the watch of pods ended"),
                },
                Ok(()) = usage.changed() => {}
                Ok(()) = beats.changed() => if told.is_some_and(|told| told.elapsed() < RETELL.min(self.app.config.heartbeat() * 2)) { continue },
                () = sleep_until(wake), if tell_at.is_some() || !model.complete() => {
                    if !model.complete() {
                        return Failure::unreachable(format!("its nodes and pods could not be listed within {} s", FIRST_LISTS.as_secs()));
                    }
                    let capacity = model.capacity(usage.borrow().as_ref(), jiff::Timestamp::now());
                    gather = GATHER + GATHER_EACH * u32::try_from(capacity.observed.len()).unwrap_or(u32::MAX);
                    self.app.fleet.room(self.key, self.member.id, capacity);
                    // Room first: who hears that the member is ready finds its room told.
                    self.app.fleet.found(self.key, self.member.id, MemberState::Ready, None);
                    (told, tell_at) = (Some(Instant::now()), None);
                    continue;
                }
            }
            if model.complete() {
                drop(listing.take());
                tell_at.get_or_insert_with(|| Instant::now() + gather);
            }
        }
    }
}
