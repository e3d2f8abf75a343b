//! Failpoints: named places in the code at which a test can pause a process, make it fail, or kill it.
//!
//! They are always compiled in. One that is not set costs a relaxed atomic load. Tests set them in their own process by
//! [`Failpoints::set`], and in another one by `DROVER_FAILPOINTS=name=action;name=action`. The actions are:
//! - `pause`: prints `failpoint <name>` to stderr, creates the file `$DROVER_FAILPOINTS_DIR/<name with / as _>`, and waits
//!   (a test in another process sees the file and sends SIGKILL),
//! - `crash`: aborts the process,
//! - `error`: the code at the failpoint fails as after a temporary error,
//! - `fatal`: the code at the failpoint fails as after an error that a repetition cannot help.
//!
//! In a process that already runs they are set by the file `$DROVER_FAILPOINTS_DIR/armed`, which has one `name=action` per line and
//! is read at every failpoint. A pause that it caused ends when its line is removed. `name@who` is only for work that is done for `who`.
//!
//! The workflow engine has the failpoints `<kind>/<step>/<do|undo>/<before|after_effect|after_journal>` of every step; `who` is
//! the workflow's subject.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// What happens at a failpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Waits until the failpoint is cleared.
    Pause,
    /// Aborts the process.
    Crash,
    /// Fails each time, temporarily.
    Error,
    /// Fails the next time only, temporarily.
    ErrorOnce,
    /// Fails once, temporarily, on this pass; passes are counted from 1 since it was set.
    ErrorOnPass(usize),
    /// Fails once, for good: a repetition would not help.
    Fatal,
    /// Ends the caller's work once, without another effect: this simulates a crash in a test in the same process.
    Halt,
}

/// The error that a failpoint gives to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Injected {
    /// A temporary error.
    #[error("an injected error")]
    Error,
    /// An error that a repetition cannot help.
    #[error("an injected failure")]
    Fatal,
    /// The caller must end without another effect.
    #[error("an injected halt")]
    Halt,
}

/// A set of failpoints. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Failpoints(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    active: AtomicBool,
    state: Mutex<FailpointState>,
    changed: Notify,
    /// The directory of the file `armed`, by which tests in other processes set failpoints of this one.
    directory: Option<PathBuf>,
}

/// How often a paused failpoint checks whether the file still asks for the pause.
const FILE_POLL: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
struct FailpointState {
    actions: HashMap<String, Action>,
    paused: Vec<String>,
    record: Option<Vec<String>>,
}

impl Failpoints {
    /// The failpoints of `DROVER_FAILPOINTS`, shared by the whole process.
    pub fn of_process() -> Self {
        static PROCESS: LazyLock<Failpoints> = LazyLock::new(|| {
            let failpoints = Failpoints::armed_in(std::env::var_os("DROVER_FAILPOINTS_DIR").map(PathBuf::from));
            for setting in std::env::var("DROVER_FAILPOINTS").unwrap_or_default().split(';').filter(|part| !part.trim().is_empty()) {
                match parse(setting) {
                    Some((name, action)) => failpoints.set(name, action),
                    None => tracing::error!(setting, "DROVER_FAILPOINTS: name=pause, name=crash, name=error or name=fatal is expected"),
                }
            }
            failpoints
        });
        PROCESS.clone()
    }

    /// No failpoints of its own; those of the file `armed` in the directory.
    pub fn armed_in(directory: Option<PathBuf>) -> Self {
        let active = AtomicBool::new(directory.is_some());
        Self(Arc::new(Inner { active, directory, ..Inner::default() }))
    }

    /// Sets a failpoint.
    pub fn set(&self, name: &str, action: Action) {
        self.lock().actions.insert(name.to_owned(), action);
        self.0.active.store(true, Ordering::Relaxed);
    }

    /// Clears a failpoint. A caller that is paused there continues.
    pub fn clear(&self, name: &str) {
        self.lock().actions.remove(name);
        self.0.changed.notify_waiters();
    }

    /// Whether the failpoint is set. One that acts once is no longer set after it has acted.
    pub fn is_armed(&self, name: &str) -> bool {
        self.lock().actions.contains_key(name)
    }

    /// Whether a caller is paused there.
    pub fn is_paused(&self, name: &str) -> bool {
        self.lock().paused.iter().any(|paused| paused == name)
    }

    /// Starts to record the names of the failpoints that are passed.
    pub fn record(&self) {
        self.lock().record = Some(Vec::new());
        self.0.active.store(true, Ordering::Relaxed);
    }

    /// The names passed since [`Failpoints::record`], in order.
    pub fn recorded(&self) -> Vec<String> {
        self.lock().record.clone().unwrap_or_default()
    }

    /// Passes a failpoint. `name` is only called when a failpoint may be set.
    ///
    /// # Errors
    /// The failpoint is set to an action that makes its caller fail.
    pub async fn reached(&self, name: impl FnOnce() -> String) -> Result<(), Injected> {
        self.reached_for("", name).await
    }

    /// Passes a failpoint in work that is done for `who`: a failpoint set as `name@who` acts, too.
    ///
    /// # Errors
    /// The failpoint is set to an action that makes its caller fail.
    pub async fn reached_for(&self, who: &str, name: impl FnOnce() -> String) -> Result<(), Injected> {
        if !self.0.active.load(Ordering::Relaxed) {
            return Ok(());
        }
        let name = name();
        let (setting, action) = match self.set_for(&name, who) {
            Some((setting, action)) => (setting, Some(action)),
            None => (name, None),
        };
        match action {
            None => Ok(()),
            Some(Action::Error | Action::ErrorOnce | Action::ErrorOnPass(_)) => Err(Injected::Error),
            Some(Action::Fatal) => Err(Injected::Fatal),
            Some(Action::Halt) => Err(Injected::Halt),
            Some(Action::Crash) => {
                eprintln!("failpoint {setting}: crash");
                std::process::abort();
            }
            Some(Action::Pause) => {
                self.pause(&setting).await;
                Ok(())
            }
        }
    }

    /// Records the pass and returns the action set there, with the name under which it was set.
    fn set_for(&self, name: &str, who: &str) -> Option<(String, Action)> {
        let names = [name.to_owned(), format!("{name}@{who}")];
        let mut state = self.lock();
        if let Some(record) = &mut state.record {
            record.push(name.to_owned());
        }
        if let Some((setting, action)) = names.iter().find_map(|name| Some((name, *state.actions.get(name)?))) {
            match action {
                Action::ErrorOnPass(pass) if pass > 1 => {
                    state.actions.insert(setting.clone(), Action::ErrorOnPass(pass - 1));
                    return None;
                }
                Action::ErrorOnce | Action::ErrorOnPass(_) | Action::Fatal | Action::Halt => drop(state.actions.remove(setting)),
                Action::Pause | Action::Crash | Action::Error => {}
            }
            return Some((setting.clone(), action));
        }
        drop(state);
        let armed = armed(self.0.directory.as_deref()?);
        armed.into_iter().find(|(setting, _)| names.contains(setting))
    }

    async fn pause(&self, name: &str) {
        eprintln!("failpoint {name}: pause");
        let by_file = self.lock().actions.get(name) != Some(&Action::Pause);
        if let Some(directory) = &self.0.directory {
            let marker = directory.join(marker(name));
            if let Err(error) = std::fs::write(&marker, b"") {
                tracing::error!(%error, marker = %marker.display(), "the failpoint's marker cannot be written");
            }
            while by_file && armed(directory).contains(&(name.to_owned(), Action::Pause)) {
                tokio::time::sleep(FILE_POLL).await;
            }
            if by_file {
                return;
            }
        }
        self.lock().paused.push(name.to_owned());
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // Registered before the check, so that a clear in between is not missed.
            changed.as_mut().enable();
            if self.lock().actions.get(name) != Some(&Action::Pause) {
                break;
            }
            changed.await;
        }
        self.lock().paused.retain(|paused| paused != name);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FailpointState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of the file in `$DROVER_FAILPOINTS_DIR` that exists once a caller has paused at the failpoint `name`.
pub fn marker(name: &str) -> String {
    name.replace('/', "_")
}

fn armed(directory: &Path) -> Vec<(String, Action)> {
    let text = std::fs::read_to_string(directory.join("armed")).unwrap_or_default();
    text.lines().filter_map(parse).map(|(name, action)| (name.to_owned(), action)).collect()
}

fn parse(setting: &str) -> Option<(&str, Action)> {
    let (name, action) = setting.rsplit_once('=')?;
    let action = match action.trim() {
        "pause" => Action::Pause,
        "crash" => Action::Crash,
        "error" => Action::Error,
        "fatal" => Action::Fatal,
        _ => return None,
    };
    Some((name.trim(), action))
}
