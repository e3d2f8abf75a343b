//! Holding a container and letting it go. Letting go is what must always work: it may be repeated, by anybody who reads the journal,
//! with the runtime there or not, and it touches nothing that somebody else has changed meanwhile.

use std::io;
use std::path::Path;

use crate::cgroup::{CpuQuota, Freezer, read_quota, write_quota};
use crate::failpoint;
use crate::journal::{Entry, Hold};
use crate::runtime::{Runtime, RuntimeError};

/// No container of this size is slowed to less than this (the runtime refuses less than 1 ms).
const SMALLEST_QUOTA: i64 = 1000;
/// The longest period the kernel takes: with it 0.1 % of a CPU can be given.
const LONGEST_PERIOD: u64 = 1_000_000;

/// Why a lever failed.
#[derive(Debug, thiserror::Error)]
pub enum LeverError {
    /// Files.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Runtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// It says yes, and nothing happened.
    #[error("the runtime agreed and the container is not held")]
    NoEffect,
}

/// What came of letting go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It is as it was.
    Restored,
    /// The container is gone, and what was done to it with it.
    Gone,
    /// Somebody else has changed it since: theirs stays.
    Foreign,
}

/// The quota with which a container crawls at `share` of what it had (of one CPU, if it was without bound).
pub fn crawl(before: CpuQuota, share: f64) -> CpuQuota {
    let had = if before.quota > 0 { before.quota as f64 / before.period.max(1) as f64 } else { 1.0 };
    let quota = (had * share * LONGEST_PERIOD as f64) as i64;
    CpuQuota { quota: quota.max(SMALLEST_QUOTA), period: LONGEST_PERIOD }
}

/// Holds it. The entry is in the journal already.
///
/// # Errors
/// It is not held, or only perhaps: the entry stays until it is let go.
pub async fn hold(entry: &Entry, runtime: &Runtime) -> Result<(), LeverError> {
    match &entry.hold {
        Hold::Freeze { freezer } => Ok(freezer.freeze()?),
        Hold::Pause { .. } => Ok(runtime.pause(&entry.container).await?),
        Hold::Quota { dir, ours, .. } => {
            // Twice: the file at once, and through the runtime so that its next update of anything does not undo it.
            write_quota(dir, *ours)?;
            failpoint::hit("mid_hold");
            runtime.set_quota(&entry.container, *ours).await?;
            if read_quota(dir)? == *ours { Ok(()) } else { Err(LeverError::NoEffect) }
        }
        Hold::High { file, .. } => Err(io::Error::other(format!("{}: a lease is set by `lease`", file.display())).into()),
    }
}

/// Lets it go. `runtime` is none where there is none: what can be done without is done, and the error says that something is left.
///
/// # Errors
/// Something is left to be done: repeat it.
pub async fn release(entry: &Entry, runtime: Option<&Runtime>) -> Result<Released, LeverError> {
    let result = match &entry.hold {
        Hold::Freeze { freezer } => freezer.thaw().map(|()| Released::Restored).map_err(LeverError::from),
        Hold::Pause { freezer } => resume(entry, freezer.as_ref(), runtime).await,
        Hold::Quota { dir, before, ours } => restore_quota(entry, dir, *before, *ours, runtime).await,
        Hold::High { file, before } => std::fs::write(file, before).map(|()| Released::Restored).map_err(LeverError::from),
    };
    match result {
        Err(LeverError::Io(error)) if gone(&error) => Ok(Released::Gone),
        Err(LeverError::Runtime(RuntimeError::Gone)) => Ok(Released::Gone),
        other => other,
    }
}

/// Whether what was done to it is still so, as far as the files tell; what cannot be read is taken for unchanged.
pub fn in_effect(entry: &Entry) -> bool {
    match &entry.hold {
        Hold::Freeze { freezer } | Hold::Pause { freezer: Some(freezer) } => freezer.frozen().unwrap_or(true),
        Hold::Pause { freezer: None } => true,
        Hold::Quota { dir, ours, .. } => read_quota(dir).map_or(true, |now| now == *ours),
        Hold::High { file, before } => std::fs::read_to_string(file).map_or(true, |now| now.trim() != before.trim()),
    }
}

/// Whether an error of a cgroup file says that the cgroup is no more.
pub fn gone(error: &io::Error) -> bool {
    const ENODEV: i32 = nix::errno::Errno::ENODEV as i32;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ENODEV)
}

/// Thaws at once by the file, and then makes containerd know: its shim refuses execs for ever in a task that was thawed behind its back,
/// and it only resumes what is frozen. So it is frozen once more for the moment of the call.
async fn resume(entry: &Entry, freezer: Option<&Freezer>, runtime: Option<&Runtime>) -> Result<Released, LeverError> {
    let Some(runtime) = runtime else {
        if let Some(freezer) = freezer {
            freezer.thaw()?;
        }
        return Err(RuntimeError::Unreachable("not asked".into()).into());
    };
    let asked = runtime.paused(&entry.container).await;
    if matches!(asked, Ok(true)) {
        if let Some(freezer) = freezer.filter(|freezer| freezer.frozen().is_ok_and(|frozen| !frozen)) {
            freezer.freeze()?;
        }
        let resumed = runtime.resume(&entry.container).await;
        if let Some(freezer) = freezer {
            freezer.thaw()?;
        }
        resumed?;
        return Ok(Released::Restored);
    }
    if let Some(freezer) = freezer {
        freezer.thaw()?;
    }
    asked?;
    Ok(Released::Restored)
}

async fn restore_quota(
    entry: &Entry,
    dir: &Path,
    before: CpuQuota,
    ours: CpuQuota,
    runtime: Option<&Runtime>,
) -> Result<Released, LeverError> {
    let now = read_quota(dir)?;
    // The file may be ours, as before (let go without the runtime), half written by either of us, or somebody's.
    let half_written = now.quota == -1 && (now.period == ours.period || now.period == before.period);
    let foreign = now != ours && now != before && !half_written;
    let goal = if foreign { now } else { before };
    if now != goal {
        write_quota(dir, goal)?;
    }
    failpoint::hit("mid_release");
    let Some(runtime) = runtime else { return Err(RuntimeError::Unreachable("not asked".into()).into()) };
    // The runtime remembers our quota even where the file does not: its next update would bring it back.
    runtime.set_quota(&entry.container, goal).await?;
    if read_quota(dir)? != goal {
        write_quota(dir, goal)?;
    }
    Ok(if foreign { Released::Foreign } else { Released::Restored })
}
