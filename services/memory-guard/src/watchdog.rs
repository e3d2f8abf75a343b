//! The dead man's switch: a second, small process that releases every container when the agent's heartbeat stops for three polls, and
//! every container that is held longer than its journal entry allows.
//!
//! It reads the journal and writes cgroup files. It calls the runtime only where the runtime has to be told. While the agent is silent it
//! keeps checking, because a call that the agent sent before it died may take effect later.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::heartbeat::{Heartbeat, HeartbeatMonitor};
use crate::journal::{self, HoldKey, JournalEntry};
use crate::levers::{Released, in_effect, release};
use crate::runtime::Runtime;

/// A hold may last this much longer than its entry allows, because an agent that lives is about to release it itself.
const GRACE: Duration = Duration::from_secs(2);
/// An agent whose heartbeat stops for this many polls, and is missed in this many readings in a row, counts as dead.
const POLLS: u32 = 3;
/// With no agent to watch and nothing held for this long, the process ends.
const IDLE: Duration = Duration::from_secs(60);

/// The files of an agent in its state directory.
#[derive(Clone, Debug)]
pub struct StateFiles(PathBuf);

impl StateFiles {
    /// The files in the directory `state`.
    pub fn of(state: &Path) -> Self {
        Self(state.to_owned())
    }

    /// Path of the journal.
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// Path of the agent's heartbeat.
    pub fn agent_pulse(&self) -> PathBuf {
        self.0.join("agent.pulse")
    }

    /// Path of the watchdog's heartbeat.
    pub fn watchdog_pulse(&self) -> PathBuf {
        self.0.join("watchdog.pulse")
    }

    /// Path of the lock that the running watchdog holds.
    pub fn watchdog_lock(&self) -> PathBuf {
        self.0.join("watchdog.lock")
    }

    /// Path of the socket on which the agent answers.
    pub fn socket(&self) -> PathBuf {
        self.0.join("agent.sock")
    }
}

/// Watches until it receives SIGTERM or there is nothing left to watch.
///
/// # Errors
/// When its files cannot be created, read or written.
pub async fn watch(files: &StateFiles, poll: Duration, runtime: Runtime) -> Result<()> {
    let lock = File::create(files.watchdog_lock()).context("cannot create the lock file of the watchdog")?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            tracing::info!("another watchdog is running; this one ends");
            return Ok(());
        }
        Err(TryLockError::Error(error)) => return Err(error).context("cannot lock the lock file of the watchdog"),
    }
    let mut terminated = signal(SignalKind::terminate())?;
    let mut beat = Heartbeat::start(&files.watchdog_pulse())?;
    let mut agent = HeartbeatMonitor::new(&files.agent_pulse());
    let mut tick = tokio::time::interval(poll);
    // Late ticks are not made up for: each reading must come a poll after the last one.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut releaser = Releaser { runtime, done: BTreeSet::new() };
    let mut idle_since = Instant::now();
    let patience = poll * POLLS;
    loop {
        let stop = tokio::select! { _ = tick.tick() => false, _ = terminated.recv() => true };
        beat.beat()?;
        let silent = agent.silence() > patience && agent.missed() >= POLLS;
        let entries = journal::read(&files.journal()).context("cannot read the journal")?;
        let now = clock::now();
        if silent {
            releaser.release(entries.values()).await;
        } else {
            releaser.done.clear();
            releaser.release(entries.values().filter(|entry| now >= entry.until + GRACE)).await;
        }
        if !silent || entries.values().any(in_effect) {
            idle_since = Instant::now();
        }
        if stop || idle_since.elapsed() > IDLE {
            return Ok(());
        }
    }
}

/// Releases everything in the journal once, without an agent: for `ExecStopPost=` and for manual use. Returns how many holds could not be
/// completely undone.
///
/// # Errors
/// When the journal cannot be read.
pub async fn thaw(files: &StateFiles, runtime: Runtime) -> Result<usize> {
    let mut releaser = Releaser { runtime, done: BTreeSet::new() };
    let entries = journal::read(&files.journal()).context("cannot read the journal")?;
    releaser.release(entries.values()).await;
    Ok(entries.len() - releaser.done.len())
}

struct Releaser {
    runtime: Runtime,
    done: BTreeSet<HoldKey>,
}

impl Releaser {
    /// All at the same time, so that a runtime that does not answer about one container does not delay the others.
    async fn release(&mut self, entries: impl Iterator<Item = &JournalEntry>) {
        let due: Vec<&JournalEntry> = entries.filter(|entry| !self.done.contains(&entry.key()) || in_effect(entry)).collect();
        let results = futures::future::join_all(due.iter().map(|entry| release(entry, Some(&self.runtime)))).await;
        for (entry, result) in due.into_iter().zip(results) {
            match result {
                Ok(released) => {
                    if self.done.insert(entry.key()) && released == Released::Restored {
                        tracing::warn!(container.name = %entry.name, container.id = %entry.container, "released by the dead man's switch");
                    }
                }
                Err(error) => {
                    // It may have been complete once: a call of an agent that died can take effect after that.
                    self.done.remove(&entry.key());
                    tracing::warn!(container.name = %entry.name, %error, "a release is not complete yet");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_memguard::Moment;

    use super::*;
    use crate::cgroup::Freezer;
    use crate::fake::{FakeContainer, FakeRuntime};
    use crate::journal::Hold;

    #[tokio::test]
    async fn a_pause_that_takes_effect_after_a_release_is_released_until_the_runtime_knows() -> Result<()> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("cgroup.freeze"), "0")?;
        let freezer = Freezer::V2(dir.path().to_owned());
        let fake = FakeRuntime::default();
        fake.serve(&dir.path().join("socket"))?;
        let runtime = Runtime::at(&dir.path().join("socket"), Duration::from_secs(60));
        let mut releaser = Releaser { runtime, done: BTreeSet::new() };
        let hold = Hold::Pause { freezer: Some(freezer.clone()) };
        let entry = JournalEntry { container: "a".into(), name: "a".into(), hold, since: Moment(0), until: Moment(1), at_gate: false };

        fake.put("a", FakeContainer::default());
        releaser.release([&entry].into_iter()).await;
        // The call of the agent that died begins to take effect, and is not over at the next release.
        fake.put("a", FakeContainer { pausing: true, ..FakeContainer::default() });
        freezer.freeze()?;
        releaser.release([&entry].into_iter()).await;
        fake.put("a", FakeContainer { paused: true, ..FakeContainer::default() });
        releaser.release([&entry].into_iter()).await;

        assert!(!fake.paused("a") && !freezer.frozen()?);
        Ok(())
    }
}
