//! The dead man's switch: a second, tiny process that lets everything go when the agent shows no sign of life for three polls, and
//! whatever is held longer than its entry in the journal allows.
//!
//! It reads the journal and writes cgroup files; it asks the runtime only where the runtime has to be told. It goes on looking while the
//! agent is silent: a call that the agent had sent before it died may take effect later.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::heartbeat::{Heartbeat, Pulse};
use crate::journal::{self, Entry, Key};
use crate::levers::{Released, in_effect, release};
use crate::runtime::Runtime;

/// An entry may be this much over its time: the agent, which lives, is about to let it go itself.
const GRACE: Duration = Duration::from_secs(2);
/// An agent that gives no sign of life for so many polls, and so many looks, is dead.
const POLLS: u32 = 3;
/// With nobody to watch and nothing held for so long, it ends.
const IDLE: Duration = Duration::from_secs(60);

/// The files of an agent, in its directory.
#[derive(Clone, Debug)]
pub struct Files(PathBuf);

impl Files {
    /// In this directory.
    pub fn of(state: &Path) -> Self {
        Self(state.to_owned())
    }

    /// The journal.
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// Beaten by the agent.
    pub fn agent_pulse(&self) -> PathBuf {
        self.0.join("agent.pulse")
    }

    /// Beaten by the watchdog.
    pub fn watchdog_pulse(&self) -> PathBuf {
        self.0.join("watchdog.pulse")
    }

    /// Locked by the one watchdog.
    pub fn watchdog_lock(&self) -> PathBuf {
        self.0.join("watchdog.lock")
    }

    /// Where the agent answers.
    pub fn socket(&self) -> PathBuf {
        self.0.join("agent.sock")
    }
}

/// Watches until it is told to stop, or until there is nothing to watch.
///
/// # Errors
/// Its files cannot be made.
pub async fn watch(files: &Files, poll: Duration, runtime: Runtime) -> Result<()> {
    let lock = File::create(files.watchdog_lock()).context("cannot make the lock of the watchdog")?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            tracing::info!("another watchdog is on duty");
            return Ok(());
        }
        Err(TryLockError::Error(error)) => return Err(error).context("cannot lock"),
    }
    let mut terminated = signal(SignalKind::terminate())?;
    let mut beat = Heartbeat::start(&files.watchdog_pulse())?;
    let mut agent = Pulse::of(&files.agent_pulse());
    let mut tick = tokio::time::interval(poll);
    // Looks that come late are not made up for: each is to be a poll after the last one.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut switch = Switch { runtime, done: BTreeSet::new() };
    let mut idle_since = Instant::now();
    let patience = poll * POLLS;
    loop {
        let stop = tokio::select! { _ = tick.tick() => false, _ = terminated.recv() => true };
        beat.beat()?;
        let silent = agent.silence() > patience && agent.missed() >= POLLS;
        let entries = journal::read(&files.journal()).context("cannot read the journal")?;
        let now = clock::now();
        if silent {
            switch.release(entries.values()).await;
        } else {
            switch.done.clear();
            switch.release(entries.values().filter(|entry| now >= entry.until + GRACE)).await;
        }
        if !silent || entries.values().any(in_effect) {
            idle_since = Instant::now();
        }
        if stop || idle_since.elapsed() > IDLE {
            return Ok(());
        }
    }
}

/// Lets everything in the journal go, once, without an agent: for `ExecStopPost=` and for people. Says how many are left.
///
/// # Errors
/// The journal cannot be read.
pub async fn thaw(files: &Files, runtime: Runtime) -> Result<usize> {
    let mut switch = Switch { runtime, done: BTreeSet::new() };
    let entries = journal::read(&files.journal()).context("cannot read the journal")?;
    switch.release(entries.values()).await;
    Ok(entries.len() - switch.done.len())
}

struct Switch {
    runtime: Runtime,
    done: BTreeSet<Key>,
}

impl Switch {
    /// All at once: a runtime that does not answer for one must not keep the others waiting.
    async fn release(&mut self, entries: impl Iterator<Item = &Entry>) {
        let due: Vec<&Entry> = entries.filter(|entry| !self.done.contains(&entry.key()) || in_effect(entry)).collect();
        let results = futures::future::join_all(due.iter().map(|entry| release(entry, Some(&self.runtime)))).await;
        for (entry, result) in due.into_iter().zip(results) {
            match result {
                Ok(released) => {
                    if self.done.insert(entry.key()) && released == Released::Restored {
                        tracing::warn!(container.name = %entry.name, container.id = %entry.container, "let go by the dead man's switch");
                    }
                }
                Err(error) => tracing::warn!(container.name = %entry.name, %error, "not wholly let go yet"),
            }
        }
    }
}
