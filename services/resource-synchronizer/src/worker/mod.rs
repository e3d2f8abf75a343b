//! The worker of one member: a task with a queue, timers and a back-off of its own.
//!
//! ```text
//! run: session, lost, wait, session, …
//! session: connect ── watches ── lists complete ── loop { desired changed | seen changed | due | written } ── reconcile(binding)
//! ```
//! Only this task has the state of its member, so nothing here is locked. Only writes run beside it, a few at a time, each for another
//! binding. `session` connects and takes events in, `schedule` decides which binding is reconciled when.
//! Invariant: nothing is written before all lists are complete, so a restart applies only what really differs.

mod binding_state;
mod carry;
mod deletion;
mod ended;
mod endpoints;
mod expectations;
mod handover;
mod hooks;
mod imports;
mod judge;
mod kinds;
mod names;
mod parting;
mod reconcile;
mod schedule;
mod session;
mod sharing;
mod testing;
mod view;
mod volume_claims;
mod warm_up;
mod watch;
mod way_in;
mod write;

pub use hooks::split;
pub use reconcile::not_granted;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use drover_api::members::Member as Registered;
use drover_members::ObjectId;
use drover_scheduling::{MemberKey, MemberState, Reachability};
use drover_service::{TaskHandle, backoff};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch as latest};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::{App, Dirty};
use crate::store::bindings::Row;
use binding_state::{BindingState, Failure};
use view::{ApiKind, Event, MemberView};
use write::Written;

/// A member whose pods are not listed after this time counts as unreachable.
const LIST: Duration = Duration::from_secs(30);
/// Longest pause between two attempts to reach a member.
const RECONNECT: Duration = Duration::from_secs(20);
/// Longest pause between two attempts at one binding.
const RETRY: Duration = Duration::from_secs(30);
/// After so many attempts (about 10 s) a binding fails, if the member answers but not for the binding's objects.
const HINDRANCES: u32 = 8;
/// After this time without failures or corrections, counting them starts again.
const CALM: Duration = Duration::from_secs(60);
/// How many bindings of a member are written at once: enough that one slow answer does not delay all others, few for an API server.
const WRITES: usize = 16;
/// How many bundles are read by one query.
const BUNDLES: usize = 100;
/// Length of the queue of watch events; a full queue delays the watch. Small, because each of a thousand queues keeps its memory.
const EVENTS: usize = 32;

/// Why a session ended.
enum SessionEnd {
    /// The worker is to end.
    Stopped,
    /// There is a newer credential.
    Credential,
    /// The member does not answer or refuses the credential.
    Lost(Failure),
}

/// The result of a pass over a binding.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing is to be done until something changes.
    Settled,
    /// Not finished: another pass is needed after a while.
    Again,
    /// Its objects are being written; the result goes to [`Worker::written`].
    Writing,
}

/// A binding that is being written.
struct Writing {
    objects: BTreeSet<Arc<ObjectId>>,
    /// Events about these objects during the write. They are taken in after the member's answers, which are older.
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
    /// Boxed, because the nodes of a tree that grows at its end are half empty.
    bindings: BTreeMap<Uuid, Box<BindingState>>,
    view: MemberView,
    watches: HashMap<ApiKind, watch::Watch>,
    /// Runs in members that have a Service of Drover; with how the data path reaches their pods.
    endpoints: Option<(Reachability, watch::Watch)>,
    events: Option<mpsc::Sender<Event>>,
    due: BTreeMap<Uuid, Instant>,
    /// Rows of due bindings that were just stored, so that they need not be read.
    stored: BTreeMap<Uuid, Box<Row>>,
    writes: JoinSet<Written>,
    writing: BTreeMap<Uuid, Writing>,
    unwatched: kinds::UnwatchedKinds,
    lost: Option<Failure>,
    /// The permit to list, until all lists of this session are complete.
    listing: Option<OwnedSemaphorePermit>,
}

impl Worker {
    /// A worker for the member that `registered` has; start it by [`Worker::run`].
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
            view: MemberView::default(),
            watches: HashMap::new(),
            endpoints: None,
            events: None,
            due: BTreeMap::new(),
            stored: BTreeMap::new(),
            writes: JoinSet::new(),
            writing: BTreeMap::new(),
            unwatched: kinds::UnwatchedKinds::default(),
            lost: None,
            listing: None,
        }
    }

    /// Works until the member is deregistered or the service ends.
    pub async fn run(mut self) {
        let mut failures = 0;
        loop {
            self.task.active();
            let began = Instant::now();
            let end = self.session().await;
            self.writes.shutdown().await;
            self.writing.clear();
            self.watches.clear();
            self.endpoints = None;
            self.events = None;
            self.listing = None;
            self.unwatched = kinds::UnwatchedKinds::default();
            match end {
                SessionEnd::Stopped => return,
                SessionEnd::Credential => failures = 0,
                SessionEnd::Lost(failure) => {
                    if self.lost.is_none() {
                        tracing::warn!(cluster.id = %self.key, reason = %failure.reason, "the member does not answer or refuses the credential");
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

    /// Waits before the next session; returns early if cluster-manager reports the member ready. Returns false if the worker is to end.
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
                // Nothing can be done without the member, but readers of the feed must see the new desired state.
                dirty = self.dirty.take() => Box::pin(self.read_and_publish(dirty)).await,
            }
        }
    }

    async fn session(&mut self) -> SessionEnd {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => SessionEnd::Stopped,
            end = self.work() => end,
        }
    }

    async fn work(&mut self) -> SessionEnd {
        let version = self.registered.borrow_and_update().credential_version;
        // When a thousand workers start, only a few members are listed at a time.
        self.listing = Some(self.app.clients.turn_to_list().await);
        // Rare branches are boxed, here and below: each of a thousand workers reserves memory for its largest future.
        let (member, mut events) = match Box::pin(self.connect(version)).await {
            Ok(connected) => connected,
            Err(end) => return end,
        };
        let mut listed_by = Instant::now() + LIST;
        loop {
            self.task.active();
            let listing = self.listing.is_some();
            let next = if listing { None } else { self.next().map(|(_, at)| at) };
            let retry_kinds = self.unwatched.due().filter(|_| !listing);
            let step = tokio::select! {
                changed = self.registered.changed() => self.changed(&member, version, changed.is_ok()).await,
                dirty = self.dirty.take() => {
                    dirty.into_iter().for_each(|(id, row)| self.look_at(id, row));
                    Ok(())
                }
                Some(event) = events.recv() => self.take(&member, event).await,
                () = sleep_until(listed_by), if listing => match Box::pin(self.skip_unlisted_kinds(&member)).await {
                    Ok(true) => {
                        listed_by += LIST;
                        Ok(())
                    }
                    Ok(false) => Err(SessionEnd::Lost(Failure::new("unreachable", format!("did not list its pods within {} s", LIST.as_secs())))),
                    Err(end) => Err(end),
                },
                Some(written) = self.writes.join_next(), if !self.writes.is_empty() => Box::pin(self.take_written(&member, written)).await,
                () = sleep_until(next.unwrap_or(listed_by)), if next.is_some() => Box::pin(self.work_off(&member)).await,
                () = sleep_until(retry_kinds.unwrap_or(listed_by)), if retry_kinds.is_some() => Box::pin(self.retry_kinds(&member)).await,
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
}
