//! The memory guard's agent as a process.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::process::{Child, Command};

use super::{PATIENCE, contains, processes};
use drover_memory_guard::journal;
use drover_memory_guard::watchdog::StateFiles;
use drover_memory_guard::wire::Status;

/// A running agent with its watchdog. Both are killed (by pid) when the value is dropped.
#[derive(Debug)]
pub struct Agent {
    /// The process.
    pub child: Child,
    /// Its files.
    pub files: StateFiles,
    state: PathBuf,
}

/// How an agent is started.
#[derive(Debug)]
pub struct Start<'a> {
    program: &'a Path,
    state: &'a Path,
    runtime: &'a Path,
    /// The content of the file for `--settings`.
    pub settings: Option<Value>,
    /// Further arguments.
    pub args: Vec<String>,
    /// A point to die at (`drover_memory_guard::failpoint`).
    pub die_at: Option<&'a str>,
    /// A point to block at.
    pub stall_at: Option<&'a str>,
    /// Names of background tasks that panic once, separated by commas.
    pub panics: Option<&'a str>,
}

impl<'a> Start<'a> {
    /// An agent that runs `program`, keeps its files in `state`, and uses the runtime at this socket.
    pub fn new(program: &'a Path, state: &'a Path, runtime: &'a Path) -> Self {
        Self { program, state, runtime, settings: None, args: Vec::new(), die_at: None, stall_at: None, panics: None }
    }

    /// Sets policy and safety.
    pub fn settings(mut self, settings: Value) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Adds arguments.
    pub fn args<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.args.extend(args.map(str::to_owned));
        self
    }

    /// Starts the agent.
    ///
    /// # Errors
    /// When its files cannot be written, or the program cannot be started.
    pub fn start(self) -> Result<Agent> {
        std::fs::create_dir_all(self.state)?;
        let mut command = Command::new(self.program);
        // The NRI socket of this runtime, never that of the machine.
        let nri = self.runtime.with_file_name("nri.sock");
        command.arg("run").arg("--state").arg(self.state).arg("--runtime").arg(self.runtime).arg("--nri").arg(nri);
        // No kubelet evicts anything here, so nothing is kept for it.
        command.args(["--eviction", "0"]).args(&self.args);
        if let Some(settings) = &self.settings {
            let file = self.state.join("settings.json");
            std::fs::write(&file, settings.to_string())?;
            command.arg("--settings").arg(file);
        }
        // The log is shown when something fails.
        command.env("MEMGUARD_LOG", "info,drover_memory_guard=debug");
        if let Some(point) = self.die_at {
            command.env("MEMGUARD_DIE_AT", point);
        }
        if let Some(point) = self.stall_at {
            command.env("MEMGUARD_STALL_AT", point);
        }
        if let Some(tasks) = self.panics {
            command.env("DROVER_PANIC_TASKS", tasks);
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.state.join("log"))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.with_context(|| format!("{} cannot be started", self.program.display()))?;
        Ok(Agent { child, files: StateFiles::of(self.state), state: self.state.to_owned() })
    }
}

impl Agent {
    /// Status code and body of a GET; `None` while the agent does not answer.
    pub async fn get(&self, path: &str) -> Option<(u16, Vec<u8>)> {
        let stream = tokio::net::UnixStream::connect(self.files.socket()).await.ok()?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let request = http::Request::get(path).header("host", "agent").body(Empty::<hyper::body::Bytes>::new()).ok()?;
        let answer = sender.send_request(request).await.ok()?;
        let code = answer.status().as_u16();
        Some((code, answer.into_body().collect().await.ok()?.to_bytes().to_vec()))
    }

    /// The agent's status; `None` while it does not answer.
    pub async fn status(&self) -> Option<Status> {
        let (code, body) = self.get("/status").await?;
        (code == 200).then(|| serde_json::from_slice(&body).ok())?
    }

    /// Waits for a status for which the condition holds.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn status_when(&self, what: &str, fits: impl Fn(&Status) -> bool) -> Result<Status> {
        let began = Instant::now();
        loop {
            let status = self.status().await;
            match status {
                Some(status) if fits(&status) => return Ok(status),
                status if began.elapsed() > PATIENCE => bail!("timed out waiting until {what}: {status:#?}\n{}", self.log()),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// The socket at which it answers.
    pub fn socket(&self) -> PathBuf {
        self.files.socket()
    }

    /// The agent's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.state.join("log")).unwrap_or_default()
    }

    /// How many held containers the agent's journal has.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn held(&self) -> io::Result<usize> {
        Ok(journal::read(&self.files.journal())?.len())
    }

    /// Terminates the agent and waits for its end.
    ///
    /// # Errors
    /// When the agent has ended before.
    pub async fn stop(mut self) -> Result<()> {
        let pid = self.child.id().context("the agent has ended by itself")?;
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM)?;
        self.child.wait().await?;
        Ok(())
    }

    /// The pid of the agent's watchdog, if it runs.
    pub fn watchdog(&self) -> Option<Pid> {
        let state = self.state.to_str()?.as_bytes().to_vec();
        processes().find(|(_, line)| contains(line, b"watchdog") && contains(line, &state)).map(|(pid, _)| Pid::from_raw(pid))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        if let Some(pid) = self.watchdog() {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}
