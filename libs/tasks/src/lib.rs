//! Supervised tasks: the work of a process beside its requests, each task under a name.
//!
//! A task that panics, or returns an error, is logged, counted ([`Tasks::failures`]) and listed ([`Tasks::list`]). What happens then is
//! the task's [`OnFailure`]: it is started again after a back-off, or the process is asked to end with an error. The invariant: no
//! task ends unnoticed while the process says that it is ready. Metrics, readiness and the list over HTTP are in `drover_service`.
//!
//! Not supervised are tasks that a caller waits for, tasks that serve one request or connection, and timers that run once.

mod entry;

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use entry::Entry;
pub use entry::{TaskList, TaskState, TaskStatus};

/// What happens when a task panics or returns an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It is started again after a back-off of at most [`LONGEST_BACKOFF`]. After [`UNREADY_AFTER`] failures in a row the process is
    /// not ready. For tasks that read everything they need when they start.
    Restart,
    /// As [`OnFailure::Restart`], but the process stays ready: for one of many equal tasks (a worker per member), whose failure must not
    /// take the service from the others.
    RestartOneOfMany,
    /// The process is not ready, and ends with an error. For tasks whose memory may be inconsistent after a panic.
    EndProcess,
}

/// The longest pause before a failed task is started again.
pub const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// After so many failures in a row the process is not ready.
pub const UNREADY_AFTER: u32 = 3;
/// A task that has run for so long begins a new row of failures.
pub const CALM: Duration = Duration::from_secs(30);

/// How a task ended.
pub trait TaskEnd {
    /// The error, if it failed.
    fn error(self) -> Option<String>;
}

impl TaskEnd for () {
    fn error(self) -> Option<String> {
        None
    }
}

impl<E: Display> TaskEnd for Result<(), E> {
    fn error(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// A task's handle on its own entry in the list; cheap to clone.
#[derive(Clone, Debug)]
pub struct TaskHandle(Arc<Entry>);

impl TaskHandle {
    /// Notes that the task is active: called at each pass of its loop.
    pub fn active(&self) {
        self.0.active();
    }
}

/// The tasks of one process, or of one service in it; clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    entries: Mutex<BTreeMap<u64, Arc<Entry>>>,
    failures: Family<FailureLabels, Counter>,
    /// Why the process ends, once a task with [`OnFailure::EndProcess`] has failed.
    fatal: OnceLock<String>,
    /// Cancelled when `fatal` is set, so that the process ends.
    shutdown: CancellationToken,
}

/// Label of [`Tasks::failures`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailureLabels {
    task: String,
}

impl Tasks {
    /// No tasks yet. `shutdown` is cancelled when a task fails that cannot be restarted.
    pub fn new(shutdown: CancellationToken) -> Self {
        Self(Arc::new(Inner { shutdown, ..Inner::default() }))
    }

    /// Runs a task on `tracker` until it ends or `stop` is cancelled. `start` makes its future, again after each failure if
    /// `on_failure` says so.
    ///
    /// `name` is shown to operators. Of a task `member/onprem+a`, one of many, metrics count only `member`.
    pub fn spawn<F, Fut>(
        &self,
        tracker: &TaskTracker,
        stop: CancellationToken,
        name: impl Into<Cow<'static, str>>,
        on_failure: OnFailure,
        start: F,
    ) where
        F: FnMut(TaskHandle) -> Fut + Send + 'static,
        Fut: Future<Output: TaskEnd> + Send + 'static,
    {
        let entry = Arc::new(Entry::new(name.into(), on_failure));
        let id = {
            let mut entries = self.entries();
            let id = entries.last_key_value().map_or(0, |(last, _)| last + 1);
            entries.insert(id, entry.clone());
            id
        };
        // From the start, so that an alert can compare with zero.
        self.count(&entry, 0);
        if panics_at_start(&entry.name) {
            entry.inject();
        }
        let tasks = self.clone();
        tracker.spawn(async move {
            let stopped = stop.run_until_cancelled(tasks.supervise(&entry, start)).await.is_none();
            // Nobody asks any more for what was stopped, nor for one of many that has ended.
            if stopped || on_failure == OnFailure::RestartOneOfMany {
                tasks.entries().remove(&id);
            }
        });
    }

    /// As [`Tasks::spawn`], for a task that cannot be started again: its failure ends the process.
    pub fn spawn_once<F, Fut>(&self, tracker: &TaskTracker, stop: CancellationToken, name: impl Into<Cow<'static, str>>, start: F)
    where
        F: FnOnce(TaskHandle) -> Fut + Send + 'static,
        Fut: Future<Output: TaskEnd> + Send + 'static,
    {
        let mut start = Some(start);
        self.spawn(tracker, stop, name, OnFailure::EndProcess, move |task| {
            let start = start.take().expect("a task that ends the process is not started again");
            start(task)
        });
    }

    async fn supervise<F, Fut>(&self, entry: &Arc<Entry>, mut start: F)
    where
        F: FnMut(TaskHandle) -> Fut,
        Fut: Future<Output: TaskEnd>,
    {
        loop {
            entry.started();
            let pass = async {
                tokio::select! {
                    end = start(TaskHandle(entry.clone())) => end.error(),
                    () = entry.injected() => panic!("a test made this task panic"),
                }
            };
            let error = match AssertUnwindSafe(pass).catch_unwind().await {
                Ok(None) => return entry.ended(),
                Ok(Some(error)) => error,
                Err(panic) => format!("panicked: {}", panic_message(&*panic)),
            };
            self.count(entry, 1);
            if entry.on_failure == OnFailure::EndProcess {
                tracing::error!(task = %entry.name, %error, "a task failed that cannot be restarted; the process ends");
                let _ = self.0.fatal.set(format!("task {} failed: {error}", entry.name));
                entry.failed(error);
                return self.0.shutdown.cancel();
            }
            let failures = entry.restarting(error.clone());
            let pause = backoff(failures, LONGEST_BACKOFF);
            tracing::error!(task = %entry.name, %error, failures, pause_ms = pause.as_millis(), "a task failed and is started again");
            tokio::time::sleep(pause).await;
        }
    }

    /// All tasks, by name.
    pub fn list(&self) -> TaskList {
        let mut tasks: Vec<TaskStatus> = self.entries().values().map(|entry| entry.status()).collect();
        tasks.sort_by(|a, b| a.name.cmp(&b.name));
        TaskList { tasks }
    }

    /// Tasks because of which the process is not ready, each with its last error.
    pub fn unready(&self) -> Vec<(String, String)> {
        self.entries().values().filter_map(|entry| Some((entry.name.to_string(), entry.unready()?))).collect()
    }

    /// Why the process ends: the failure of a task that cannot be restarted.
    pub fn fatal(&self) -> Option<&str> {
        self.0.fatal.get().map(String::as_str)
    }

    /// Makes running tasks of this name panic where they wait. Returns whether there was one. For tests.
    #[doc(hidden)]
    pub fn inject_panic(&self, name: &str) -> bool {
        let entries = self.entries();
        let named: Vec<_> = entries.values().filter(|entry| entry.name == name).collect();
        named.iter().for_each(|entry| entry.inject());
        !named.is_empty()
    }

    /// The counter to register: failures by task. Of tasks with a slash in their name only the part before it counts.
    pub fn failures(&self) -> Family<FailureLabels, Counter> {
        self.0.failures.clone()
    }

    fn count(&self, entry: &Entry, failures: u64) {
        let task = entry.name.split('/').next().unwrap_or_default().to_owned();
        self.0.failures.get_or_create(&FailureLabels { task }).inc_by(failures);
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Entry>>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a test wants the first run of this task to panic where it waits: `DROVER_PANIC_TASKS` has names of tasks, separated by commas.
#[cfg(debug_assertions)]
fn panics_at_start(name: &str) -> bool {
    std::env::var("DROVER_PANIC_TASKS").is_ok_and(|names| names.split(',').any(|named| named == name))
}

/// Never in a release build.
#[cfg(not(debug_assertions))]
fn panics_at_start(_: &str) -> bool {
    false
}

/// The message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// The pause before the attempt after the `attempt`-th, which is counted from 1: 50 ms doubling up to `longest`, half of it random.
pub fn backoff(attempt: u32, longest: Duration) -> Duration {
    let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1).min(16));
    let whole = Duration::from_millis(50).saturating_mul(doubled).min(longest);
    whole.mul_f64(0.5 + fastrand::f64() / 2.0)
}
