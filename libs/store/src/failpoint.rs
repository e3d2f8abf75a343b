//! Named places at which a test can stop, break or kill a process.
//!
//! Compiled in always, inert unless set: an unset [`Failpoints`] is one relaxed load. Set in-process by tests
//! ([`Failpoints::set`]) or from outside by `DROVER_FAILPOINTS=name=action;name=action`, with
//! - `pause`: print `failpoint <name>` to stderr, make the file `$DROVER_FAILPOINTS_DIR/<name with / as _>`, and wait for ever
//!   (the test outside sees the file and sends SIGKILL),
//! - `crash`: abort the process there,
//! - `error`: the code there fails as if its effect had not worked.
//!
//! The workflow engine offers `<kind>/<step>/<do|undo>/<before|after_effect|after_journal>` of every step.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tokio::sync::Notify;

/// What happens at a failpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Wait until the failpoint is cleared.
    Pause,
    /// Abort the process.
    Crash,
    /// Fail, each time.
    Error,
    /// Fail the next time only.
    ErrorOnce,
    /// Fail for good, once: what asked should give up and unwind.
    Fatal,
    /// Stop the caller dead without ending the process: a crash as a test in the same process can have it. Once.
    Halt,
}

/// What a failpoint made of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Injected {
    /// Something did not work; again it may.
    #[error("an injected error")]
    Error,
    /// Something will not work.
    #[error("an injected failure")]
    Fatal,
    /// The caller must end without another effect.
    #[error("an injected halt")]
    Halt,
}

/// A set of failpoints; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Failpoints(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    active: AtomicBool,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    actions: HashMap<String, Action>,
    paused: Vec<String>,
    record: Option<Vec<String>>,
}

impl Failpoints {
    /// Those of `DROVER_FAILPOINTS`, shared by the whole process.
    pub fn of_process() -> Self {
        static PROCESS: LazyLock<Failpoints> = LazyLock::new(|| {
            let failpoints = Failpoints::default();
            for setting in std::env::var("DROVER_FAILPOINTS").unwrap_or_default().split(';').filter(|part| !part.trim().is_empty()) {
                let action = setting.rsplit_once('=').and_then(|(name, action)| Some((name.trim(), parse(action.trim())?)));
                match action {
                    Some((name, action)) => failpoints.set(name, action),
                    None => tracing::error!(setting, "DROVER_FAILPOINTS: want name=pause, name=crash or name=error"),
                }
            }
            failpoints
        });
        PROCESS.clone()
    }

    /// Arms a failpoint.
    pub fn set(&self, name: &str, action: Action) {
        self.lock().actions.insert(name.to_owned(), action);
        self.0.active.store(true, Ordering::Relaxed);
    }

    /// Disarms it; a caller that pauses there goes on.
    pub fn clear(&self, name: &str) {
        self.lock().actions.remove(name);
        self.0.changed.notify_waiters();
    }

    /// Whether it is still set: those that act once are not, after they have.
    pub fn is_armed(&self, name: &str) -> bool {
        self.lock().actions.contains_key(name)
    }

    /// Whether somebody is pausing there.
    pub fn is_paused(&self, name: &str) -> bool {
        self.lock().paused.iter().any(|paused| paused == name)
    }

    /// Starts to write down the names of the failpoints that are passed.
    pub fn record(&self) {
        self.lock().record = Some(Vec::new());
        self.0.active.store(true, Ordering::Relaxed);
    }

    /// What was passed since [`Failpoints::record`], in order.
    pub fn recorded(&self) -> Vec<String> {
        self.lock().record.clone().unwrap_or_default()
    }

    /// To be called at the place. `name` is only made when something is set.
    pub async fn reached(&self, name: impl FnOnce() -> String) -> Result<(), Injected> {
        if !self.0.active.load(Ordering::Relaxed) {
            return Ok(());
        }
        let name = name();
        let action = {
            let mut state = self.lock();
            if let Some(record) = &mut state.record {
                record.push(name.clone());
            }
            let action = state.actions.get(&name).copied();
            if matches!(action, Some(Action::ErrorOnce | Action::Fatal | Action::Halt)) {
                state.actions.remove(&name);
            }
            action
        };
        match action {
            None => Ok(()),
            Some(Action::Error | Action::ErrorOnce) => Err(Injected::Error),
            Some(Action::Fatal) => Err(Injected::Fatal),
            Some(Action::Halt) => Err(Injected::Halt),
            Some(Action::Crash) => {
                eprintln!("failpoint {name}: crash");
                std::process::abort();
            }
            Some(Action::Pause) => {
                self.pause(&name).await;
                Ok(())
            }
        }
    }

    async fn pause(&self, name: &str) {
        eprintln!("failpoint {name}: pause");
        if let Some(directory) = std::env::var_os("DROVER_FAILPOINTS_DIR") {
            let marker = std::path::Path::new(&directory).join(name.replace('/', "_"));
            if let Err(error) = std::fs::write(&marker, b"") {
                tracing::error!(%error, marker = %marker.display(), "the failpoint's marker cannot be written");
            }
        }
        self.lock().paused.push(name.to_owned());
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that a clear in between is not missed.
            changed.as_mut().enable();
            if self.lock().actions.get(name) != Some(&Action::Pause) {
                break;
            }
            changed.await;
        }
        self.lock().paused.retain(|paused| paused != name);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(action: &str) -> Option<Action> {
    match action {
        "pause" => Some(Action::Pause),
        "crash" => Some(Action::Crash),
        "error" => Some(Action::Error),
        _ => None,
    }
}
