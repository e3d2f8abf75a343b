//! One task in the list: its state, what went wrong last, and when it was last active.

use std::borrow::Cow;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{CALM, OnFailure, UNREADY_AFTER};

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// It runs.
    Running,
    /// It failed and is started again after a back-off.
    Restarting,
    /// It failed and is not started again: the process ends.
    Failed,
    /// It returned without an error.
    Ended,
}

/// A task as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStatus {
    pub name: String,
    pub state: TaskState,
    pub on_failure: OnFailure,
    /// How often it was started again since the process started.
    pub restarts: u64,
    /// The last panic or error, also after a restart.
    pub last_error: Option<String>,
    /// The last pass of its loop, or its start.
    pub last_active: Timestamp,
}

/// All tasks of a process or service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskList {
    /// By name.
    pub tasks: Vec<TaskStatus>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub name: Cow<'static, str>,
    pub on_failure: OnFailure,
    progress: Mutex<Progress>,
    /// Milliseconds since 1970.
    last_active: AtomicI64,
    injected: Notify,
}

#[derive(Debug)]
struct Progress {
    state: TaskState,
    started: Instant,
    starts: u64,
    /// Failures in a row.
    failures: u32,
    last_error: Option<String>,
}

impl Entry {
    pub fn new(name: Cow<'static, str>, on_failure: OnFailure) -> Self {
        let progress = Progress { state: TaskState::Running, started: Instant::now(), starts: 0, failures: 0, last_error: None };
        let entry = Self { name, on_failure, progress: Mutex::new(progress), last_active: AtomicI64::default(), injected: Notify::new() };
        entry.active();
        entry
    }

    pub fn active(&self) {
        self.last_active.store(Timestamp::now().as_millisecond(), Ordering::Relaxed);
    }

    pub fn started(&self) {
        let mut progress = self.progress();
        progress.state = TaskState::Running;
        progress.started = Instant::now();
        progress.starts += 1;
        drop(progress);
        self.active();
    }

    pub fn ended(&self) {
        self.progress().state = TaskState::Ended;
    }

    pub fn failed(&self, error: String) {
        let mut progress = self.progress();
        progress.state = TaskState::Failed;
        progress.last_error = Some(error);
    }

    /// Returns how many failures there were in a row, this one included.
    pub fn restarting(&self, error: String) -> u32 {
        let mut progress = self.progress();
        progress.state = TaskState::Restarting;
        progress.failures = if progress.started.elapsed() >= CALM { 1 } else { progress.failures.saturating_add(1) };
        progress.last_error = Some(error);
        progress.failures
    }

    /// The error because of which the process is not ready.
    pub fn unready(&self) -> Option<String> {
        let progress = self.progress();
        let failing = match (self.on_failure, progress.state) {
            (_, TaskState::Failed) => true,
            (OnFailure::Restart, TaskState::Restarting) => progress.failures >= UNREADY_AFTER,
            // Started again, but it did not last the times before.
            (OnFailure::Restart, TaskState::Running) => progress.failures >= UNREADY_AFTER && progress.started.elapsed() < CALM,
            _ => false,
        };
        progress.last_error.clone().filter(|_| failing)
    }

    pub fn status(&self) -> TaskStatus {
        let progress = self.progress();
        TaskStatus {
            name: self.name.to_string(),
            state: progress.state,
            on_failure: self.on_failure,
            restarts: progress.starts.saturating_sub(1),
            last_error: progress.last_error.clone(),
            last_active: Timestamp::from_millisecond(self.last_active.load(Ordering::Relaxed)).unwrap_or_default(),
        }
    }

    pub fn inject(&self) {
        self.injected.notify_one();
    }

    pub async fn injected(&self) {
        self.injected.notified().await;
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
