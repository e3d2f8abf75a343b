//! The engine: claims due workflows and drives each in a task of its own.
//!
//! Any number of engines share the tables. A workflow belongs to the hand whose fence is in its row; leases are by engine (one
//! heartbeat row), so thousands of workflows cost one write every few seconds. Parked workflows belong to nobody.

mod answer;
mod claim;
mod drive;
mod lease;
mod unwind;

use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_service::telemetry;
use drover_store::failpoint::Failpoints;
use drover_store::{Store, StoreError, StoreResult};
use sqlx::PgConnection;
use tokio::sync::{Notify, Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::journal::NewWorkflow;
use crate::runner::{Runner, Typed};
use crate::wakes::Wakes;
use crate::{StepError, Workflow};

/// How an engine behaves; the defaults are for production.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Stable across restarts, different between engines that run at once: `orchestrator-0`.
    pub name: String,
    /// Too low: a stalled engine loses its work to others for nothing. Too high: a dead engine's work lies that long (a
    /// restart under the same name takes it back at once).
    pub lease: Duration,
    /// How often due work is looked for when nobody says that there is some.
    pub poll: Duration,
    /// How often a parked workflow looks again without being woken: what a lost wake-up costs.
    pub slow_poll: Duration,
    /// First pause after an error; doubles up to [`Settings::longest_backoff`].
    pub backoff: Duration,
    /// Longest pause after an error.
    pub longest_backoff: Duration,
    /// How many workflows run at once; parked ones do not count.
    pub concurrency: usize,
    /// How long [`Engine::stop`] lets running steps finish.
    pub grace: Duration,
    /// Where tests stop it.
    pub failpoints: Failpoints,
}

impl Settings {
    /// The defaults, with the failpoints of the process.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            lease: Duration::from_secs(15),
            poll: Duration::from_secs(1),
            slow_poll: Duration::from_secs(30),
            backoff: Duration::from_millis(500),
            longest_backoff: Duration::from_secs(30),
            concurrency: 64,
            grace: Duration::from_secs(10),
            failpoints: Failpoints::of_process(),
        }
    }
}

/// Registers the kinds an engine knows.
#[derive(Clone, Default)]
pub struct Registry {
    runners: BTreeMap<(&'static str, i32), Arc<dyn Runner>>,
    pub(crate) on_end: Option<Arc<EndObserver>>,
}

pub(crate) type EndObserver = dyn Fn(&EndedWorkflow) + Send + Sync;

/// A workflow that has ended, as told to the observer of [`Registry::on_end`].
#[derive(Clone, Debug)]
pub struct EndedWorkflow {
    pub id: Uuid,
    pub kind: String,
    /// `done`, `failed` or `cancelled`.
    pub status: String,
    /// From its creation to its end.
    pub took: Duration,
}

impl Registry {
    /// No kinds.
    pub fn new() -> Self {
        Self::default()
    }

    /// One kind (in one version) and the world its steps work in.
    pub fn with<W: Workflow>(mut self, environment: Arc<W::Environment>) -> Self {
        self.runners.insert((W::KIND, W::VERSION), Arc::new(Typed::<W>::new(environment)));
        self
    }

    /// Calls `observe` after each end that an engine of this registry has journaled, once per workflow. It runs in the engine's
    /// task, so it must not block. Not called when the process dies, or the answer to the commit is lost, right after the commit.
    pub fn on_end(mut self, observe: impl Fn(&EndedWorkflow) + Send + Sync + 'static) -> Self {
        self.on_end = Some(Arc::new(observe));
        self
    }

    pub(crate) fn runner(&self, kind: &str, version: i32) -> Option<&Arc<dyn Runner>> {
        self.runners.values().find(|runner| runner.kind() == kind && runner.version() == version)
    }

    /// `kind/version` of each, as the claims compare them.
    pub(crate) fn known(&self) -> Vec<String> {
        self.runners.keys().map(|(kind, version)| format!("{kind}/{version}")).collect()
    }
}

/// A task of the engine that runs as long as it does.
type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A running engine; clones are handles to the same one.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub store: Store,
    pub settings: Settings,
    pub registry: Registry,
    /// Of this start; a new start under the same name has another.
    pub incarnation: Uuid,
    pub wakes: Wakes,
    pub changed: broadcast::Sender<Uuid>,
    /// The same of those that have ended, for those who wait for nothing else.
    pub ended: broadcast::Sender<Uuid>,
    /// There may be due work.
    pub due: Notify,
    /// There are wake-ups to write.
    pub called: Notify,
    /// What runs in this process.
    pub running: Mutex<HashSet<Uuid>>,
    pub permits: Arc<Semaphore>,
    /// No new work; running steps finish.
    pub stopping: CancellationToken,
    /// Now: as if killed.
    pub killed: CancellationToken,
    pub tasks: TaskTracker,
}

/// Why a workflow was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The input does not become JSON.
    #[error("the workflow's input cannot be written: {0}")]
    Input(String),
}

/// Why a workflow is not being cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelError {
    /// There is none of that id.
    #[error("no such workflow")]
    NotFound,
    /// It has ended; there is nothing to cancel.
    #[error("the workflow has ended")]
    Ended,
    /// It has cut over and only goes forward (`past_the_pivot`).
    #[error("the workflow is past its point of no return")]
    PastThePivot,
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Takes the name, takes back what an earlier engine of that name held, and begins to work.
    pub async fn start(store: Store, registry: Registry, settings: Settings) -> StoreResult<Self> {
        let engine = Self(Arc::new(Inner {
            permits: Arc::new(Semaphore::new(settings.concurrency)),
            store,
            settings,
            registry,
            incarnation: Uuid::now_v7(),
            wakes: Wakes::default(),
            changed: broadcast::channel(1024).0,
            ended: broadcast::channel(1024).0,
            due: Notify::new(),
            called: Notify::new(),
            running: Mutex::default(),
            stopping: CancellationToken::new(),
            killed: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }));
        engine.0.take_name().await?;
        for background in [lease::keep as fn(Arc<Inner>) -> Background, claim::work, claim::write_wakes] {
            let killed = engine.0.killed.clone();
            engine.0.tasks.spawn(killed.run_until_cancelled_owned(background(engine.0.clone())));
        }
        Ok(engine)
    }

    /// Inserts a workflow in the caller's transaction, together with the caller's own rows. False when there is one of that id
    /// already (of an earlier try). Call [`Engine::nudge`] after the commit, else it starts with the next poll.
    pub async fn start_in_tx<W: Workflow>(&self, tx: &mut PgConnection, id: Uuid, input: &W::Input) -> Result<bool, StartError> {
        let new = NewWorkflow::of::<W>(input).map_err(|error| match error {
            StepError::Retry { message, .. } => StartError::Input(message),
            StepError::Fail(failure) => StartError::Input(failure.message),
        })?;
        Ok(new.insert(tx, id, None, telemetry::traceparent().as_deref()).await?)
    }

    /// There is new work: look now.
    pub fn nudge(&self) {
        self.0.due.notify_one();
    }

    /// Something changed that workflows may be parked on. Cheap, never blocks; unknown keys do nothing.
    pub fn wake(&self, key: &str) {
        self.0.wakes.call(key);
        self.0.called.notify_one();
    }

    /// Asks a workflow to undo itself. Refused past the pivot; repeating it changes nothing.
    pub async fn cancel(&self, id: Uuid) -> Result<(), CancelError> {
        let mut tx = self.0.store.begin().await?;
        let row: Option<(bool, bool)> = sqlx::query_as("select past_pivot, ended_at is not null from workflow where id = $1 for update")
            .bind(id)
            .fetch_optional(&mut *tx)
            .await
            .map_err(StoreError::from)?;
        match row {
            None => return Err(CancelError::NotFound),
            Some((_, true)) => return Err(CancelError::Ended),
            Some((true, _)) => return Err(CancelError::PastThePivot),
            Some((false, false)) => {}
        }
        sqlx::query("update workflow set cancel_requested = true, woken = true, run_at = least(run_at, now()), revision = revision + 1, updated_at = now() where id = $1")
            .bind(id)
            .execute(&mut *tx)
            .await
            .map_err(StoreError::from)?;
        tx.commit().await.map_err(StoreError::from)?;
        self.0.changed(id);
        self.nudge();
        Ok(())
    }

    /// Lets running steps finish (for [`Settings::grace`]), gives back what is left, and waits for the end.
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        self.0.tasks.close();
        if tokio::time::timeout(self.0.settings.grace, self.0.tasks.wait()).await.is_err() {
            tracing::warn!("some workflow steps did not end in time; they will be repeated");
            self.0.killed.cancel();
            self.0.tasks.wait().await;
        }
        if let Err(error) = self.0.give_up_name().await {
            tracing::warn!(%error, "the engine's lease could not be returned; it ends by itself");
        }
    }

    /// Ends at once, leaving everything as a SIGKILL would. For tests.
    pub async fn kill(&self) {
        self.0.stopping.cancel();
        self.0.killed.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

impl Inner {
    pub(crate) fn changed(&self, id: Uuid) {
        // Nobody listening is fine.
        let _ = self.changed.send(id);
    }

    pub(crate) fn running(&self) -> std::sync::MutexGuard<'_, HashSet<Uuid>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for work after a pause that is shorter than the poll.
    pub(crate) fn nudge_after(self: &Arc<Self>, delay: Duration) {
        if delay >= self.settings.poll {
            return;
        }
        let engine = self.clone();
        self.tasks.spawn(async move {
            let _ = tokio::time::timeout(delay, engine.stopping.cancelled()).await;
            engine.due.notify_one();
        });
    }
}
