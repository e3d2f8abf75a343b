//! Runs the server process so that it ends with this one, even after a SIGKILL.
//!
//! A small shell script runs between the two processes. It waits for the server, and a subshell waits for the end of a pipe whose other
//! end only this process holds. When this process closes the pipe or dies, the subshell makes the server shut down (fast, with a
//! checkpoint).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::programs::Programs;
use super::{Durability, Home, PrivatePostgresError, Result, io};

/// A log of more bytes is rotated.
const LARGEST_LOG: u64 = 16 << 20;
/// How often the size of the log is looked at.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// `$1` is the directory to remove at the end (or empty), the rest is the command line of the server.
const SCRIPT: &str = r#"exec 3<&0; remove=$1; shift
"$@" 3<&- </dev/null & server=$!
(cat <&3 >/dev/null; kill -INT $server 2>/dev/null) &
wait $server; status=$?
[ -z "$remove" ] || rm -rf -- "$remove"
exit $status"#;

/// The running shell script, which ends the server when this is dropped.
#[derive(Debug)]
pub(super) struct Supervisor {
    shell: Child,
    log: PathBuf,
    /// Dropped with this value; the thread that rotates the log ends then.
    _rotates: mpsc::Sender<()>,
}

impl Supervisor {
    /// Starts the script, and the server below it.
    pub fn start(programs: &Programs, home: &Home, port: u16, durability: Durability) -> Result<Self> {
        io("rotate the server's log", rotate(&home.log()))?;
        let log = io("open the server's log", File::options().create(true).append(true).open(home.log()))?;
        let errors = io("open the server's log", log.try_clone())?;
        let remove = if durability == Durability::ThrowAway {
            programs.give(&home.path)?;
            home.path.clone()
        } else {
            PathBuf::new()
        };
        let mut command = programs.command(Path::new("/bin/sh"));
        command.args(["-c", SCRIPT, "drover-postgres"]).arg(remove);
        command.arg(&programs.postgres).arg("-D").arg(home.data()).args(["-p", &port.to_string()]);
        let mut settings = vec!["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200", "shared_buffers=64MB"];
        if durability != Durability::Durable {
            settings.extend(["fsync=off", "full_page_writes=off", "autovacuum=off", "max_wal_size=128MB", "min_wal_size=2MB"]);
        }
        if durability == Durability::ThrowAway {
            settings.push("synchronous_commit=off");
        }
        for setting in settings {
            command.args(["-c", setting]);
        }
        let shell = io("start Postgres", command.stdin(Stdio::piped()).stdout(log).stderr(errors).spawn())?;
        let (rotates, ended) = mpsc::channel::<()>();
        let path = home.log();
        std::thread::spawn(move || {
            while ended.recv_timeout(LOG_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                if let Err(error) = rotate(&path) {
                    tracing::warn!(%error, log = %path.display(), "the log of Postgres cannot be rotated");
                }
            }
        });
        Ok(Self { shell, log: home.log(), _rotates: rotates })
    }

    /// Whether the server, and so the script, has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.shell.try_wait(), Ok(Some(_)))
    }

    /// Closes the pipe and waits for the end, for 30 s at most. A server that needs longer for its checkpoint is not killed: the next start
    /// would only have to recover then.
    pub fn stop(mut self) {
        drop(self.shell.stdin.take());
        let give_up = Instant::now() + Duration::from_secs(30);
        while !self.has_ended() && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The error of a server that did not start, with the end of its log.
    pub fn start_failure(&self) -> PrivatePostgresError {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        PrivatePostgresError::Start { log: self.log.clone(), tail: lines[lines.len().saturating_sub(8)..].join("\n") }
    }
}

/// Keeps a log that has become large beside the log, instead of the one kept before, and empties it. The server goes on appending to the same
/// file; lines that it writes in between are lost.
fn rotate(log: &Path) -> std::io::Result<()> {
    if std::fs::metadata(log).is_ok_and(|found| found.len() > LARGEST_LOG) {
        std::fs::copy(log, log.with_extension("1"))?;
        File::options().write(true).open(log)?.set_len(0)?;
    }
    Ok(())
}

/// Deals with the `postmaster.pid` of an earlier run. This process holds the directory's lock, so the server named there is no longer in use:
/// it is shutting down because its process was just killed, or it is dead and another process may have its pid now.
pub(super) fn end_orphan(data: &Path) -> Result<()> {
    let pid_file = data.join("postmaster.pid");
    let Ok(text) = std::fs::read_to_string(&pid_file) else {
        return Ok(());
    };
    let Some(pid) = text.lines().next().and_then(|line| line.trim().parse().ok()).filter(|pid| *pid > 1) else {
        return io("remove a broken postmaster.pid", std::fs::remove_file(&pid_file));
    };
    // The working directory of a server is its data directory: another process with a reused pid has another one.
    let serves_here = || std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|directory| directory == data);
    let give_up = Instant::now() + Duration::from_secs(30);
    while serves_here() {
        match kill(Pid::from_raw(pid), Signal::SIGINT) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return io("stop the server of an earlier run", Err(errno.into())),
        }
        if Instant::now() > give_up {
            return io("stop the server of an earlier run", Err(std::io::ErrorKind::TimedOut.into()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // Postgres would take a process with a reused pid for a server, and refuse to start.
    match std::fs::remove_file(&pid_file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => io("remove a stale postmaster.pid", Err(error)),
        _ => Ok(()),
    }
}
