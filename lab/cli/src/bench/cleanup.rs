//! An interrupted benchmark leaves neither processes nor directories.
//!
//! `drover bench` is two processes. The outer one makes a scratch directory, starts the same program again as the inner one, and waits
//! for it. The inner one measures: all its temporary directories are in the scratch directory, and its standard input is a pipe that
//! only the outer one holds open. When the outer one gets SIGINT, SIGTERM or SIGHUP, or dies, the pipe closes; the inner one then drops
//! what it is measuring with, which ends the processes of the measure in order, and ends. The outer one adopts processes whose parent
//! died (it is a child subreaper), ends those that the inner one left behind, and removes the scratch directory. So nothing is left
//! whichever of the two is killed; only when both get SIGKILL at once can something remain.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::{machine, memory_guard, stack};
use crate::dev::kube::{Set, TakenDown};

/// Names the scratch directory to the inner process; whoever has it is that process.
const SCRATCH: &str = "DROVER_BENCH_SCRATCH";
/// How long processes that were left behind may take to end before they are killed.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// Runs `measure` so that nothing of it is left however it ends.
///
/// # Errors
/// No scratch directory or process can be made, or `measure` fails.
pub fn run(measure: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = Runtime::new()?;
    match std::env::var_os(SCRATCH).map(PathBuf::from) {
        Some(scratch) => inner(runtime, &scratch, measure),
        None => outer(&runtime),
    }
}

/// Measures until it is done, or until the outer process ends or closes the pipe.
fn inner(runtime: Runtime, scratch: &Path, measure: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let (send, closed) = tokio::sync::oneshot::channel();
    // A thread of its own, because the end of the runtime would wait for a blocking task that reads.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = send.send(());
    });
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = measure => Some(outcome),
            _ = closed => None,
        }
    });
    // Waits for tasks that may still write into the scratch directory.
    drop(runtime);
    outcome.unwrap_or_else(|| {
        // The outer process does the same, unless it was killed.
        let _ = std::fs::remove_dir_all(scratch);
        Ok(ExitCode::FAILURE)
    })
}

/// Starts the inner process, passes on that it is to end, and cleans up behind it.
fn outer(runtime: &Runtime) -> Result<ExitCode> {
    let scratch = stack::folder()?;
    set_child_subreaper(true)?;
    let mut stop = {
        let _within = runtime.enter();
        Stop::new()?
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(SCRATCH, scratch.path()).env("TMPDIR", scratch.path());
    // A process group of its own: Ctrl-C on the terminal is for the outer process alone.
    let mut child = command.stdin(Stdio::piped()).process_group(0).spawn().context("cannot start the process that measures")?;
    let inner = Pid::from_raw(i32::try_from(child.id())?);
    let (send, mut ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || send.send(reap_until(inner)));
    let (status, signal) = runtime.block_on(async {
        tokio::select! {
            status = &mut ended => (status, None),
            signal = stop.received() => {
                eprintln!("interrupted; ending what was started…");
                drop(child.stdin.take());
                tokio::select! {
                    status = &mut ended => (status, Some(signal)),
                    // Asked twice: whatever is left is ended below.
                    _ = stop.received() => {
                        let _ = kill(inner, Signal::SIGKILL);
                        ((&mut ended).await, Some(signal))
                    }
                }
            }
        }
    });
    take_down(scratch.path());
    end_remaining();
    memory_guard::remove_cgroups(child.id());
    let _ = scratch.close();
    Ok(match (signal, status?.and_then(|status| status.code())) {
        (Some(signal), _) => ExitCode::from(128 + signal),
        (None, Some(code)) => u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from),
        (None, None) => ExitCode::FAILURE,
    })
}

/// Takes down the real nodes that an inner process left because it was killed: nothing else knows of their namespaces and cgroups.
fn take_down(scratch: &Path) {
    for folder in std::fs::read_dir(scratch).into_iter().flatten().flatten() {
        let kube = folder.path().join("kube");
        if kube.is_dir() {
            drop(TakenDown(Set { dir: Some(kube) }));
        }
    }
}

/// Signals that ask the benchmark to end.
struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        let [interrupt, terminate, hangup] = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self { interrupt: interrupt?, terminate: terminate?, hangup: hangup? })
    }

    /// Waits for one of them; its number.
    async fn received(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT as u8,
            _ = self.terminate.recv() => Signal::SIGTERM as u8,
            _ = self.hangup.recv() => Signal::SIGHUP as u8,
        }
    }
}

/// Collects the ends of all children, adopted ones too, until that of `inner`; how that ended.
fn reap_until(inner: Pid) -> Option<ExitStatus> {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == inner => return Some(ExitStatus::from_raw(code << 8)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == inner => return Some(ExitStatus::from_raw(signal as i32)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// Ends all processes below this one: in order, and by force those that take too long.
fn end_remaining() {
    let began = Instant::now();
    let mut asked = Vec::new();
    loop {
        while !matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive) | Err(_)) {}
        let left: Vec<u32> = machine::descendants(std::process::id()).into_iter().skip(1).collect();
        // What does not end even so waits for the kernel, and nobody can end it.
        if left.is_empty() || began.elapsed() > 2 * END_PATIENCE {
            return;
        }
        let signal = if began.elapsed() < END_PATIENCE { Signal::SIGTERM } else { Signal::SIGKILL };
        for pid in left {
            if signal == Signal::SIGKILL || !asked.contains(&pid) {
                let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
                asked.push(pid);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
