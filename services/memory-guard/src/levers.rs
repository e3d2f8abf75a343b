//! Holding a container and releasing it. A release must always be possible: it can be repeated, by any process that reads the journal,
//! with or without the runtime, and it changes nothing that something else has changed in the meantime.

use std::io;
use std::path::Path;

use crate::cgroup::{CpuQuota, Freezer, read_quota, write_quota};
use crate::failpoint;
use crate::journal::{Hold, JournalEntry};
use crate::runtime::{PauseState, Runtime, RuntimeError};

/// The smallest quota in microseconds; the runtime refuses less than 1 ms.
const SMALLEST_QUOTA: i64 = 1000;
/// The longest period that the kernel accepts, in microseconds. With it a container can get as little as 0.1 % of a CPU.
const LONGEST_PERIOD: u64 = 1_000_000;

/// Why holding or releasing a container failed.
#[derive(Debug, thiserror::Error)]
pub enum LeverError {
    /// A cgroup file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The runtime cannot be reached, or refused.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The runtime reported success, but the container is not held.
    #[error("the runtime reported success, but the container is not held")]
    NoEffect,
    /// The runtime is still pausing the container, so it cannot resume it yet.
    #[error("the runtime is still pausing the container")]
    Pausing,
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The state from before the hold is restored.
    Restored,
    /// The container is gone, and the hold with it.
    Gone,
    /// Something else has changed the quota since, and that change stays.
    Foreign,
}

/// The quota for a container that is to get `share` of the CPU that it had (of one CPU, if it had no quota).
pub fn slow_quota(before: CpuQuota, share: f64) -> CpuQuota {
    let had = if before.quota > 0 { before.quota as f64 / before.period.max(1) as f64 } else { 1.0 };
    let quota = (had * share * LONGEST_PERIOD as f64) as i64;
    CpuQuota { quota: quota.max(SMALLEST_QUOTA), period: LONGEST_PERIOD }
}

/// Holds the container. The entry must be in the journal already.
///
/// # Errors
/// When the container is not held, or possibly not. The entry stays open until it is released.
pub async fn hold(entry: &JournalEntry, runtime: &Runtime) -> Result<(), LeverError> {
    match &entry.hold {
        Hold::Freeze { freezer } => Ok(freezer.freeze()?),
        Hold::Pause { .. } => Ok(runtime.pause(&entry.container).await?),
        Hold::Quota { dir, ours, .. } => {
            // First the file, which takes effect at once, then the runtime, so that its next update does not undo the quota.
            write_quota(dir, *ours)?;
            failpoint::hit("mid_hold");
            runtime.set_quota(&entry.container, *ours).await?;
            if read_quota(dir)? == *ours { Ok(()) } else { Err(LeverError::NoEffect) }
        }
        Hold::High { file, .. } => Err(io::Error::other(format!("{}: a lease cannot be set without its value", file.display())).into()),
    }
}

/// Writes `memory.high` in a thread of its own: below its present use the kernel reclaims memory during the write, which can take longer
/// than the dead man's switch waits for a heartbeat.
///
/// # Errors
/// When the file cannot be written.
pub async fn set_high(file: &Path, value: String) -> Result<(), LeverError> {
    let file = file.to_owned();
    let written = tokio::task::spawn_blocking(move || {
        failpoint::stall("high");
        std::fs::write(file, value)
    });
    Ok(written.await.map_err(io::Error::other)??)
}

/// Releases the container. Without a `runtime`, everything that needs none is done, and the error says that something is left.
///
/// # Errors
/// When something is left to be done: the caller repeats the release.
pub async fn release(entry: &JournalEntry, runtime: Option<&Runtime>) -> Result<Released, LeverError> {
    let result = match &entry.hold {
        Hold::Freeze { freezer } => freezer.thaw().map(|()| Released::Restored).map_err(LeverError::from),
        Hold::Pause { freezer } => resume(entry, freezer.as_ref(), runtime).await,
        Hold::Quota { dir, before, ours } => restore_quota(entry, dir, *before, *ours, runtime).await,
        Hold::High { file, before } => set_high(file, before.clone()).await.map(|()| Released::Restored),
    };
    match result {
        Err(LeverError::Io(error)) if gone(&error) => Ok(Released::Gone),
        Err(LeverError::Runtime(RuntimeError::Gone)) => Ok(Released::Gone),
        other => other,
    }
}

/// Whether a hold is still in effect, as far as the files tell. A file that cannot be read counts as unchanged.
pub fn in_effect(entry: &JournalEntry) -> bool {
    match &entry.hold {
        Hold::Freeze { freezer } | Hold::Pause { freezer: Some(freezer) } => freezer.frozen().unwrap_or(true),
        Hold::Pause { freezer: None } => true,
        Hold::Quota { dir, ours, .. } => read_quota(dir).map_or(true, |now| now == *ours),
        Hold::High { file, before } => std::fs::read_to_string(file).map_or(true, |now| now.trim() != before.trim()),
    }
}

/// Whether an error of a cgroup file means that the cgroup does not exist any more.
pub fn gone(error: &io::Error) -> bool {
    const ENODEV: i32 = nix::errno::Errno::ENODEV as i32;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ENODEV)
}

/// Resumes a container that was paused through containerd. The file is written first, which takes effect at once, and then containerd is
/// told: its shim refuses every exec in a task that was thawed without it. containerd resumes only a frozen task, so the task is frozen
/// again for the moment of that call.
async fn resume(entry: &JournalEntry, freezer: Option<&Freezer>, runtime: Option<&Runtime>) -> Result<Released, LeverError> {
    if let Some(freezer) = freezer {
        freezer.thaw()?;
    }
    let Some(runtime) = runtime else { return Err(RuntimeError::Unreachable("it was not asked".into()).into()) };
    match runtime.pause_state(&entry.container).await? {
        PauseState::Running => return Ok(Released::Restored),
        // A pause of an agent that died may still be under way. Without a second release the task would be paused for containerd only.
        PauseState::Pausing => return Err(LeverError::Pausing),
        PauseState::Paused => {}
    }
    if let Some(freezer) = freezer {
        freezer.freeze()?;
    }
    let resumed = runtime.resume(&entry.container).await;
    if let Some(freezer) = freezer {
        freezer.thaw()?;
    }
    resumed?;
    Ok(Released::Restored)
}

async fn restore_quota(
    entry: &JournalEntry,
    dir: &Path,
    before: CpuQuota,
    ours: CpuQuota,
    runtime: Option<&Runtime>,
) -> Result<Released, LeverError> {
    let now = read_quota(dir)?;
    // The file may hold the guard's quota, the earlier quota (released without the runtime), a half-written pair of the two, or a quota
    // of something else.
    let half_written = now.quota == -1 && (now.period == ours.period || now.period == before.period);
    let foreign = now != ours && now != before && !half_written;
    let goal = if foreign { now } else { before };
    if now != goal {
        write_quota(dir, goal)?;
    }
    failpoint::hit("mid_release");
    let Some(runtime) = runtime else { return Err(RuntimeError::Unreachable("it was not asked".into()).into()) };
    // The runtime remembers the guard's quota even where the file does not, and its next update would restore it.
    runtime.set_quota(&entry.container, goal).await?;
    if read_quota(dir)? != goal {
        write_quota(dir, goal)?;
    }
    Ok(if foreign { Released::Foreign } else { Released::Restored })
}
