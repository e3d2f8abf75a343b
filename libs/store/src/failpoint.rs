//! Named places at which a test can stop, break or kill a process.
//!
//! Compiled in always, inert unless set: an unset [`Failpoints`] is one relaxed load. Set in-process by tests
//! ([`Failpoints::set`]) or from outside by `DROVER_FAILPOINTS=name=action;name=action`, with
//! - `pause`: print `failpoint <name>` to stderr, make the file `$DROVER_FAILPOINTS_DIR/<name with / as _>`, and wait
//!   (the test outside sees the file and sends SIGKILL),
//! - `crash`: abort the process there,
//! - `error`: the code there fails as if its effect had not worked,
//! - `fatal`: the same, and will not work another time either.
//!
//! A process that runs is armed by the file `$DROVER_FAILPOINTS_DIR/armed`, a `name=action` per line, read at every failpoint;
//! a pause that it asked for ends when its line is gone. `name@who` means only the one that works for `who`.
//!
//! The workflow engine offers `<kind>/<step>/<do|undo>/<before|after_effect|after_journal>` of every step, `who` being the
//! workflow's subject.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

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
    /// Fail once, on this pass, counted from 1 when it is set.
    ErrorOnPass(usize),
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
    /// Where tests outside of this process arm it.
    directory: Option<PathBuf>,
}

/// How often a pause looks whether the file still asks for it.
const LOOK: Duration = Duration::from_millis(10);

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
            let failpoints = Failpoints::armed_in(std::env::var_os("DROVER_FAILPOINTS_DIR").map(PathBuf::from));
            for setting in std::env::var("DROVER_FAILPOINTS").unwrap_or_default().split(';').filter(|part| !part.trim().is_empty()) {
                match parse(setting) {
                    Some((name, action)) => failpoints.set(name, action),
                    None => tracing::error!(setting, "DROVER_FAILPOINTS: want name=pause, name=crash, name=error or name=fatal"),
                }
            }
            failpoints
        });
        PROCESS.clone()
    }

    /// None set, but the file `armed` of the directory is read at each.
    pub fn armed_in(directory: Option<PathBuf>) -> Self {
        let active = AtomicBool::new(directory.is_some());
        Self(Arc::new(Inner { active, directory, ..Inner::default() }))
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
        self.reached_for("", name).await
    }

    /// The same, in work that is done for `who`: settings of `name@who` are meant too.
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

    /// What is set there, and by which name; notes the passing.
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
                tokio::time::sleep(LOOK).await;
            }
            if by_file {
                return;
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

/// The file that says in `$DROVER_FAILPOINTS_DIR` that somebody pauses at the failpoint `name`.
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
