//! The engine: claims due workflows and runs each of them in a task of its own.
//!
//! Any number of engines share the tables. Each engine has one lease (a row of `worker`), whatever the number of its workflows, so
//! thousands of workflows cost one write every few seconds. A claim gives a workflow to one engine and a new fence to its row; an
//! engine that has lost the workflow has a lower fence, and its writes to the journal are refused. A parked workflow has no engine.

mod claim;
mod driver;
mod lease;
mod start;
mod step_end;
mod undo;

use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_service::{OnFailure, TaskHandle, Tasks, telemetry};
use drover_store::failpoint::Failpoints;
use drover_store::{Store, StoreError, StoreResult};
use sqlx::PgConnection;
use tokio::sync::{Notify, Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::Workflow;
use crate::runner::{Runner, TypedRunner};
use crate::wakes::Wakes;

pub use start::Started;

/// How an engine behaves; the defaults are for production.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Stable across restarts, and different between engines that run at the same time: `orchestrator-0`.
    pub name: String,
    /// For how long other engines leave this engine's workflows alone after its last sign of life. Too low: an engine that only
    /// stalls loses its workflows to others. Too high: the workflows of a dead engine stand still for that long (unless it is
    /// restarted under the same name: then it takes them back at once).
    pub lease: Duration,
    /// How often the engine looks for due workflows without having been nudged.
    pub poll: Duration,
    /// After how long a parked workflow runs its step again without having been woken. This is what a lost wake-up costs.
    pub slow_poll: Duration,
    /// Pause after the first error; it doubles with each further one, up to [`Settings::longest_backoff`].
    pub backoff: Duration,
    pub longest_backoff: Duration,
    /// How many workflows run at once. Parked ones do not count.
    pub concurrency: usize,
    /// How long [`Engine::stop`] waits for running steps. Shorter than the lease, which is not renewed during that time.
    pub grace: Duration,
    pub failpoints: Failpoints,
    /// The tasks of the service: the engine's own are supervised among them.
    pub tasks: Tasks,
}

impl Settings {
    /// The defaults for production, with the failpoints of the process.
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
            tasks: Tasks::default(),
        }
    }
}

/// The kinds of workflows that an engine can run.
#[derive(Clone, Default)]
pub struct Registry {
    runners: BTreeMap<(&'static str, i32), Arc<dyn Runner>>,
    pub(crate) on_end: Option<Arc<EndObserver>>,
}

pub(crate) type EndObserver = dyn Fn(&EndedWorkflow) + Send + Sync;

/// A workflow that has ended, as the observer of [`Registry::on_end`] sees it.
#[derive(Clone, Debug)]
pub struct EndedWorkflow {
    pub id: Uuid,
    pub kind: String,
    /// `done`, `failed` or `cancelled`.
    pub status: String,
    /// From the creation of the workflow to its end.
    pub took: Duration,
}

impl Registry {
    /// A registry without kinds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind (in one version) and the environment that its steps get.
    pub fn with<W: Workflow>(mut self, environment: Arc<W::Environment>) -> Self {
        self.runners.insert((W::KIND, W::VERSION), Arc::new(TypedRunner::<W>::new(environment)));
        self
    }

    /// Calls `observe` once for each workflow whose end an engine of this registry has journaled. The call is made by the engine's
    /// task, so it must not block. There is no call when the process dies, or the connection breaks, right after the commit.
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
/// Starts one of the engine's own tasks, also again after a panic.
type BackgroundStart = fn(Arc<Inner>, TaskHandle) -> Background;

/// A running engine; clones are handles to the same one.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub store: Store,
    pub settings: Settings,
    pub registry: Registry,
    /// Identifies this start of the engine: a restart under the same name has another one.
    pub incarnation: Uuid,
    pub wakes: Wakes,
    /// Ids of workflows that this process has changed.
    pub changed: broadcast::Sender<Uuid>,
    /// Ids of workflows that have ended, for those who wait only for the end.
    pub ended: broadcast::Sender<Uuid>,
    /// Notified when there may be due workflows.
    pub due: Notify,
    /// Notified when there are wake-ups to write.
    pub called: Notify,
    /// The workflows that run in this process, or are about to: it claims none of them.
    pub running: Mutex<HashSet<Uuid>>,
    /// How many claims were begun. One that is begun while a workflow runs leaves that one out.
    pub claims: AtomicU64,
    pub permits: Arc<Semaphore>,
    /// Cancelled when no more workflows are to be claimed; running steps finish.
    pub stopping: CancellationToken,
    /// Cancelled when another engine has taken this engine's name.
    pub name_taken: CancellationToken,
    /// Cancelled when all tasks are to end at once, as if the process had been killed.
    pub killed: CancellationToken,
    pub tasks: TaskTracker,
}

/// Another engine has taken the name of this one.
#[derive(Debug, thiserror::Error)]
#[error("another process has taken the engine name {0} over; give each orchestrator a name of its own (--instance)")]
struct NameTaken(String);

/// Why a workflow was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The input cannot be written as JSON.
    #[error("the workflow's input cannot be written: {0}")]
    Input(String),
}

/// Why a workflow was not cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelError {
    /// There is no workflow of that id.
    #[error("no such workflow")]
    NotFound,
    /// There is nothing left to cancel.
    #[error("the workflow has ended")]
    Ended,
    /// The pivot has been committed: the workflow can no longer be undone (code `past_the_pivot`).
    #[error("the workflow is past its point of no return")]
    PastThePivot,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Takes the name over, with the workflows that an earlier start under this name left running, and begins to work.
    ///
    /// # Errors
    /// The database cannot be reached, or has not the tables of [`crate::migrations`].
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
            claims: AtomicU64::default(),
            stopping: CancellationToken::new(),
            name_taken: CancellationToken::new(),
            killed: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }));
        engine.0.take_name().await?;
        // What they remember is in the database or in `Inner`, so each may be restarted after a panic.
        let background: [(&str, BackgroundStart); 3] =
            [("engine-lease", lease::keep), ("engine-claim", claim::work), ("engine-wakes", claim::write_wakes)];
        for (name, run) in background {
            let (tasks, inner) = (engine.0.settings.tasks.clone(), engine.0.clone());
            tasks.spawn(&engine.0.tasks, engine.0.killed.clone(), name, OnFailure::Restart, move |task| run(inner.clone(), task));
        }
        // Two engines of one name would take each other's workflows, so the process ends instead of standing still while it is ready.
        let inner = engine.0.clone();
        engine.0.settings.tasks.spawn_once(&engine.0.tasks, engine.0.killed.clone(), "engine-name", |_| async move {
            tokio::select! {
                biased;
                () = inner.name_taken.cancelled() => Err(NameTaken(inner.settings.name.clone())),
                () = inner.stopping.cancelled() => Ok(()),
            }
        });
        Ok(engine)
    }

    /// Inserts a workflow in the caller's transaction, together with the caller's own rows. False when there is a workflow of that
    /// id already (an earlier try has inserted it). Call [`Engine::nudge`] after the commit; without it, the workflow starts with the
    /// next poll.
    ///
    /// # Errors
    /// The input cannot be written as JSON, or the statement fails; the transaction can then only be rolled back.
    pub async fn start_in_tx<W: Workflow>(&self, tx: &mut PgConnection, id: Uuid, input: &W::Input) -> Result<bool, StartError> {
        let new = start::new_workflow::<W>(input)?;
        Ok(new.insert(tx, id, None, telemetry::traceparent().as_deref()).await?)
    }

    /// Makes the engine look for due workflows at once.
    pub fn nudge(&self) {
        self.0.due.notify_one();
    }

    /// Wakes the workflows that are parked on this key. It is cheap and never blocks; a key that nobody is parked on does nothing.
    pub fn wake(&self, key: &str) {
        self.0.wakes.call(key);
        self.0.called.notify_one();
    }

    /// Asks for a workflow to be undone. Asking again changes nothing.
    ///
    /// # Errors
    /// There is no such workflow, it has ended, it is past its pivot, or the database cannot be reached.
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

    /// Stops the engine: running steps may finish for up to [`Settings::grace`], the workflows are given back, and other engines can
    /// take them at once. Returns when all tasks have ended.
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        self.0.tasks.close();
        if tokio::time::timeout(self.0.settings.grace, self.0.tasks.wait()).await.is_err() {
            tracing::warn!("some workflow steps did not end within the grace period; they will be repeated");
            self.0.killed.cancel();
            self.0.tasks.wait().await;
        }
        if let Err(error) = self.0.give_up_name().await {
            tracing::warn!(%error, "the engine's lease could not be given back; other engines wait until it runs out");
        }
    }

    /// Ends all tasks at once and leaves everything as a SIGKILL of the process would. For tests.
    pub async fn kill(&self) {
        self.0.stopping.cancel();
        self.0.killed.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

impl Inner {
    pub(crate) fn changed(&self, id: Uuid) {
        // An error only means that nobody listens.
        let _ = self.changed.send(id);
    }

    pub(crate) fn running(&self) -> std::sync::MutexGuard<'_, HashSet<Uuid>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for due workflows after a pause that is shorter than the poll; otherwise the poll finds them in time.
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
