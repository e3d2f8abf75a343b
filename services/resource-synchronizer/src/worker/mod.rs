//! One member's worker: a task of its own with its own queue, clock and back-off.
//!
//! ```text
//! run: session, lost, wait, session, …
//! session: connect ── watches ── lists complete ── loop { desired changed | seen changed | due | written } ── reconcile(binding)
//! ```
//! Everything that is known of a member is known to this one task, so nothing here is locked. Only writes run beside it, a few
//! at a time, each of another binding.
//! Invariant: nothing is written before all lists are complete, so a restart re-applies only what really differs.

mod judge;
mod kinds;
mod reconcile;
mod watch;
mod world;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use drover_api::members::Member as Registered;
use drover_members::{Member, MemberError, ObjectId, kubeconfig};
use drover_scheduling::{MemberKey, MemberState};
use drover_service::{TaskHandle, backoff};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch as latest};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::{App, Dirty, Error};
use crate::store;
use judge::{Bound, Failure, status};
use reconcile::Outcome;
use world::{Event, Kind, World};
use write::Written;

/// A member that has not listed its objects after so long is not reachable in any useful sense.
const LIST: Duration = Duration::from_secs(30);
/// Longest pause between two attempts to reach a member.
const RECONNECT: Duration = Duration::from_secs(20);
/// Longest pause between two attempts at one binding.
const RETRY: Duration = Duration::from_secs(30);
/// A binding whose objects the member does not answer for, though it answers, fails after so many attempts (about 10 s).
const HINDRANCES: u32 = 8;
/// Quiet for so long, a binding's failures are forgiven.
const CALM: Duration = Duration::from_secs(60);
/// Bindings of a member that are written at once: enough that one slow answer does not hold up the next, few for its API server.
const WRITES: usize = 16;
/// Bundles that are read at once.
const BUNDLES: usize = 100;
/// Watch events on their way; more hold back the watch. Room that a queue once needed it keeps, and there are a thousand.
const EVENTS: usize = 32;

/// Why a session ended.
enum End {
    /// The worker shall end.
    Stopped,
    /// There is a newer credential.
    Credential,
    /// The member cannot be worked with.
    Lost(Failure),
}

/// A binding that is being written.
struct Writing {
    objects: BTreeSet<Arc<ObjectId>>,
    /// What was seen of these objects meanwhile. It is taken in after what the member answered, which is older.
    seen: Vec<Event>,
}

/// The worker of one member.
pub struct Worker {
    app: App,
    key: MemberKey,
    registered: latest::Receiver<Registered>,
    dirty: Arc<Dirty>,
    stop: CancellationToken,
    task: TaskHandle,
    /// Boxed, for a tree that grows at its end is half empty.
    bindings: BTreeMap<Uuid, Box<Bound>>,
    world: World,
    watches: HashMap<Kind, watch::Watch>,
    events: Option<mpsc::Sender<Event>>,
    due: BTreeMap<Uuid, Instant>,
    writes: JoinSet<Written>,
    writing: BTreeMap<Uuid, Writing>,
    blind: kinds::Blind,
    lost: Option<Failure>,
    /// Its turn to list, until all lists of this session are there.
    listing: Option<OwnedSemaphorePermit>,
}

impl Worker {
    /// A worker that is to be [`Worker::run`].
    pub fn new(app: App, registered: latest::Receiver<Registered>, dirty: Arc<Dirty>, stop: CancellationToken, task: TaskHandle) -> Self {
        let key = registered.borrow().key.clone();
        Self {
            app,
            key,
            registered,
            dirty,
            stop,
            task,
            bindings: BTreeMap::new(),
            world: World::default(),
            watches: HashMap::new(),
            events: None,
            due: BTreeMap::new(),
            writes: JoinSet::new(),
            writing: BTreeMap::new(),
            blind: kinds::Blind::default(),
            lost: None,
            listing: None,
        }
    }

    /// Works until the member is gone or the service ends.
    pub async fn run(mut self) {
        let mut failures = 0;
        loop {
            self.task.active();
            let began = Instant::now();
            let end = self.session().await;
            self.writes.shutdown().await;
            self.writing.clear();
            self.watches.clear();
            self.events = None;
            self.listing = None;
            self.blind = kinds::Blind::default();
            match end {
                End::Stopped => return,
                End::Credential => failures = 0,
                End::Lost(failure) => {
                    if self.lost.is_none() {
                        tracing::warn!(cluster.id = %self.key, reason = %failure.reason, "the member cannot be worked with");
                    }
                    self.lost = Some(failure);
                    Box::pin(self.publish_all()).await;
                    failures = if began.elapsed() > CALM { 1 } else { failures + 1 };
                    if !self.pause(backoff(failures, RECONNECT)).await {
                        return;
                    }
                }
            }
        }
    }

    /// Waits before the next session; whatever cluster-manager learns of the member cuts it short. False: the end.
    async fn pause(&mut self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return false,
                () = sleep_until(until) => return true,
                changed = self.registered.changed() => match changed {
                    Ok(()) if self.registered.borrow().state == MemberState::Ready => return true,
                    Ok(()) => {}
                    Err(_) => return false,
                },
                // Nothing can be done, but whoever follows must hear that it cannot.
                ids = self.dirty.take() => Box::pin(self.read_and_publish(ids)).await,
            }
        }
    }

    async fn session(&mut self) -> End {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => End::Stopped,
            end = self.work() => end,
        }
    }

    async fn work(&mut self) -> End {
        let version = self.registered.borrow_and_update().credential_version;
        // A start of a thousand workers lists a few members at a time.
        self.listing = Some(self.app.clients.turn_to_list().await);
        // Boxed, here and below, is what a worker seldom does: there are a thousand, and each keeps room for the largest.
        let (member, mut events) = match Box::pin(self.connect(version)).await {
            Ok(connected) => connected,
            Err(end) => return end,
        };
        let mut listed_by = Instant::now() + LIST;
        loop {
            self.task.active();
            let listing = self.listing.is_some();
            let next = if listing { None } else { self.next().map(|(_, at)| at) };
            let look = self.blind.due().filter(|_| !listing);
            let step = tokio::select! {
                changed = self.registered.changed() => self.changed(&member, version, changed.is_ok()).await,
                ids = self.dirty.take() => {
                    ids.into_iter().for_each(|id| self.schedule(id, Duration::ZERO));
                    Ok(())
                }
                Some(event) = events.recv() => self.take(&member, event).await,
                () = sleep_until(listed_by), if listing => match Box::pin(self.pass_over_silent(&member)).await {
                    Ok(true) => {
                        listed_by += LIST;
                        Ok(())
                    }
                    Ok(false) => Err(End::Lost(Failure { code: "unreachable", reason: format!("did not list its pods within {} s", LIST.as_secs()) })),
                    Err(end) => Err(end),
                },
                Some(written) = self.writes.join_next(), if !self.writes.is_empty() => Box::pin(self.take_written(&member, written)).await,
                () = sleep_until(next.unwrap_or(listed_by)), if next.is_some() => Box::pin(self.work_off(&member)).await,
                () = sleep_until(look.unwrap_or(listed_by)), if look.is_some() => Box::pin(self.look_again(&member)).await,
            };
            if let Err(end) = step {
                return end;
            }
            if listing && self.is_listed() {
                if let Err(end) = Box::pin(self.recognise(&member)).await {
                    return end;
                }
                self.listing = None;
            }
        }
    }

    async fn connect(&mut self, version: i64) -> Result<(Arc<Member>, mpsc::Receiver<Event>), End> {
        let failure = |code, reason| End::Lost(Failure { code, reason });
        let client = match self.app.clients.cached(&self.key, version).await {
            Some(client) => client,
            None => {
                let credential = self
                    .app
                    .credential(&self.key)
                    .await
                    .map_err(|error| failure("unreachable", format!("its kubeconfig cannot be had: {error}")))?;
                let vetted = kubeconfig::vet(credential.kubeconfig.expose()).map_err(|error| failure(error.code(), error.to_string()))?;
                let built = self.app.clients.get(&self.key, credential.version, &vetted).await;
                built.map_err(|error| failure(error.code(), error.to_string()))?
            }
        };
        let member = Arc::new(Member::new(client));
        let broken = |error: MemberError| failure(error.code(), error.to_string());
        member.mapping("v1", "Pod").await.map_err(broken)?;
        let stored = |error: drover_store::StoreError| failure("store_unavailable", error.to_string());
        self.load().await.map_err(stored)?;
        let kinds = store::inventory::kinds(&self.app.store, &self.key).await.map_err(stored)?;
        let (sender, events) = mpsc::channel(EVENTS);
        let pods = (String::new(), String::new());
        self.world = World::default();
        self.watches.insert(pods, watch::pods(&member, self.app.hub, sender.clone()));
        self.events = Some(sender);
        self.watch_all(&member, kinds).await?;
        Ok((member, events))
    }

    /// Reads everything that is desired of this member.
    async fn load(&mut self) -> Result<(), drover_store::StoreError> {
        let mut inventories = store::inventory::of_member(&self.app.store, &self.key).await?;
        let rows = store::bindings::of_member(&self.app.store, &self.key).await?;
        self.due.clear();
        self.bindings = rows
            .into_iter()
            .map(|row| {
                let id = row.desired.id;
                (id, Box::new(Bound::new(self.app.shared.row(row), inventories.remove(&id).unwrap_or_default())))
            })
            .collect();
        Ok(())
    }

    /// All lists are there: from now on the world can be trusted. What is as desired is told so and costs no pass.
    async fn recognise(&mut self, member: &Member) -> Result<(), End> {
        if self.lost.take().is_some() {
            tracing::info!(cluster.id = %self.key, "the member can be worked with again");
        }
        let unknown: Vec<Uuid> =
            self.bindings.values().filter(|bound| bound.present() && bound.wanted.is_none()).map(|bound| bound.id()).collect();
        for some in unknown.chunks(BUNDLES) {
            let digests: BTreeSet<&str> = some.iter().map(|id| &*self.bindings[id].row.desired.digest).collect();
            let stored = |error: drover_store::StoreError| End::Lost(Failure { code: "store_unavailable", reason: error.to_string() });
            let bundles = store::bundles::get_all(&self.app.store, digests).await.map_err(stored)?;
            for id in some {
                // Whoever cannot be prepared has a pass, which says why.
                let Some(bundle) = bundles.get(&*self.bindings[id].row.desired.digest) else { continue };
                if let Ok(Ok(objects)) = self.prepared(member, &self.bindings[id], bundle).await {
                    self.bound(*id).wants(&objects);
                }
            }
        }
        let known: BTreeSet<Uuid> = self.bindings.keys().copied().chain(self.world.bindings()).collect();
        for id in known {
            self.publish(id);
            if self.needs_work(id) {
                self.schedule(id, Duration::ZERO);
            }
        }
        self.forget_kinds().await;
        Ok(())
    }

    async fn changed(&mut self, member: &Member, version: i64, alive: bool) -> Result<(), End> {
        let (newest, state) = {
            let registered = self.registered.borrow_and_update();
            (registered.credential_version, registered.state)
        };
        if !alive {
            return Err(End::Stopped);
        }
        if newest != version {
            return Err(End::Credential);
        }
        if matches!(state, MemberState::Unreachable | MemberState::Unauthorized) { self.probe(member).await } else { Ok(()) }
    }

    async fn take(&mut self, member: &Member, event: Event) -> Result<(), End> {
        if let Event::Broken(kind, reason) = &event {
            tracing::debug!(cluster.id = %self.key, ?kind, %reason, "a watch was interrupted");
            return self.probe(member).await;
        }
        match event.object().and_then(|object| self.writing.values_mut().find(|writing| writing.objects.contains(object))) {
            Some(writing) => writing.seen.push(event),
            None => self.see(event),
        }
        Ok(())
    }

    fn see(&mut self, mut event: Event) {
        if let Event::Object(id, seen) = &mut event
            && let Some(bound) = self.bindings.get(&seen.binding)
        {
            bound.share(id, seen);
        }
        let touched = self.world.take(event);
        // Half a list proves nothing; when it is whole everybody is judged.
        if self.listing.is_some() {
            return;
        }
        for id in touched {
            self.publish(id);
            // What is being written is judged when it is.
            if !self.writing.contains_key(&id) && self.needs_work(id) {
                self.schedule(id, self.patience(id));
            }
        }
    }

    /// Whether the member answers at all.
    async fn probe(&self, member: &Member) -> Result<(), End> {
        let lost = |code, reason| Err(End::Lost(Failure { code, reason }));
        match timeout(drover_members::member::DEADLINE, member.client().list_core_api_versions()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => lost("unauthorized", status.message.clone()),
            Ok(Err(error)) => lost("unreachable", error.to_string()),
            Err(_) => lost("unreachable", "does not answer".to_owned()),
        }
    }

    fn needs_work(&self, id: Uuid) -> bool {
        let Some(bound) = self.bindings.get(&id) else { return self.world.of_binding(id).next().is_some() };
        match (bound.row.gone, bound.present()) {
            (true, _) => self.world.of_binding(id).next().is_some(),
            (false, false) => true,
            (false, true) => {
                bound.wanted.is_none()
                    || !bound.drifted(&self.world).is_empty()
                    || (bound.is_ready(&self.world) && !bound.superfluous(&self.world).is_empty())
            }
        }
    }

    /// What is due next, and when; what is being written waits for that, and so do all when enough are.
    fn next(&self) -> Option<(Uuid, Instant)> {
        let free = self.due.iter().filter(|(id, _)| !self.writing.contains_key(id));
        free.min_by_key(|(_, at)| **at).map(|(id, at)| (*id, *at)).filter(|_| self.writing.len() < WRITES)
    }

    /// Reconciles what is due, one binding; the loop comes back for the next, so that events are taken in between.
    async fn work_off(&mut self, member: &Arc<Member>) -> Result<(), End> {
        let Some((id, _)) = self.next() else { return Ok(()) };
        self.due.remove(&id);
        let outcome = self.reconcile(member, id).await;
        self.conclude(member, id, outcome).await
    }

    /// A write has ended.
    async fn take_written(&mut self, member: &Member, written: Result<Written, JoinError>) -> Result<(), End> {
        let written = match written {
            Ok(written) => written,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let id = written.id;
        let outcome = self.written(member, written).await;
        self.conclude(member, id, outcome).await
    }

    /// Tells how the binding stands, and when to look at it again.
    async fn conclude(&mut self, member: &Member, id: Uuid, outcome: Result<Outcome, Error>) -> Result<(), End> {
        let outcome = match outcome {
            // The member, or only what was asked of it (a webhook that fails, an API that is down)?
            Err(Error::Member(error)) if error.is_member() => {
                self.probe(member).await?;
                self.hinder(id, &error);
                Outcome::Again
            }
            Err(Error::Injected(drover_store::failpoint::Injected::Halt)) => return Err(End::Stopped),
            Err(error) => {
                tracing::error!(cluster.id = %self.key, binding.id = %id, %error, "a pass over the binding failed");
                Outcome::Again
            }
            Ok(outcome) => outcome,
        };
        self.publish(id);
        if outcome == Outcome::Writing {
            return Ok(());
        }
        let known = self.bindings.contains_key(&id);
        if outcome == Outcome::Settled && !(known && self.needs_work(id)) {
            if let Some(bound) = self.bindings.get_mut(&id) {
                (bound.attempts, bound.hindrance) = (0, None);
            }
            return Ok(());
        }
        let pause = match self.bindings.get_mut(&id) {
            // Deleting is waited for: events come, the clock is only the fallback.
            Some(bound) => {
                bound.attempts += 1;
                backoff(bound.attempts, RETRY)
            }
            None => Duration::from_secs(1),
        };
        self.schedule(id, pause);
        Ok(())
    }

    /// The member answers, but not for this binding: that is tried again, and a failure when it stays so.
    fn hinder(&mut self, id: Uuid, error: &MemberError) {
        let Some(bound) = self.bindings.get_mut(&id) else { return };
        tracing::warn!(cluster.id = %self.key, binding.id = %id, attempts = bound.attempts, %error, "the member does not answer for the binding");
        let code = if bound.present() { "apply_failed" } else { "delete_failed" };
        let failure = Box::new(Failure { code, reason: error.to_string() });
        if bound.attempts >= HINDRANCES {
            bound.failure = Some(failure.clone());
        }
        bound.hindrance = Some(failure);
    }

    fn schedule(&mut self, id: Uuid, after: Duration) {
        let at = Instant::now() + after;
        let due = self.due.entry(id).or_insert(at);
        *due = (*due).min(at);
    }

    /// How long what is seen of a binding must wait: deletion goes on at once, what failed or is fought over waits.
    fn patience(&self, id: Uuid) -> Duration {
        match self.bindings.get(&id) {
            Some(bound) if bound.present() => {
                let fights = bound.corrections.0.saturating_sub(2);
                let waits = if bound.failure.is_some() || bound.hindrance.is_some() { bound.attempts.max(fights) } else { fights };
                if waits == 0 { Duration::ZERO } else { backoff(waits, RETRY) }
            }
            _ => Duration::ZERO,
        }
    }

    fn publish(&self, id: Uuid) {
        if let Some(bound) = self.bindings.get(&id) {
            let status = status(bound, &self.world, self.lost.as_ref());
            self.app.statuses.publish_if_changed(id.to_string(), Some(status));
        }
    }

    async fn publish_all(&mut self) {
        if self.bindings.is_empty() {
            // Never connected: what is desired is in the tables alone.
            if let Err(error) = self.load().await {
                tracing::error!(cluster.id = %self.key, %error, "cannot read the bindings of the member");
            }
        }
        self.bindings.keys().for_each(|id| self.publish(*id));
    }

    async fn read_and_publish(&mut self, ids: BTreeSet<Uuid>) {
        for id in ids {
            match store::bindings::get(&self.app.store, id).await {
                Ok(Some(row)) => {
                    let row = self.app.shared.row(row);
                    let bound = self.bindings.entry(id).or_insert_with(|| Box::new(Bound::new(row.clone(), Default::default())));
                    bound.row = row;
                    self.publish(id);
                }
                Ok(None) => {
                    self.bindings.remove(&id);
                }
                Err(error) => tracing::error!(cluster.id = %self.key, binding.id = %id, %error, "cannot read the binding"),
            }
        }
    }
}
