//! The agent as the process that it is.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use drover_memory_guard::journal;
use drover_memory_guard::watchdog::Files;
use drover_memory_guard::wire::Status;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::process::{Child, Command};

/// A running agent, its watchdog included. Dropped, both end (by pid).
pub struct Agent {
    pub child: Child,
    pub files: Files,
    state: PathBuf,
}

/// How it is started.
pub struct Start<'a> {
    pub state: &'a Path,
    pub runtime: &'a Path,
    pub settings: Option<Value>,
    pub args: Vec<String>,
    pub die_at: Option<&'a str>,
}

impl<'a> Start<'a> {
    pub fn new(state: &'a Path, runtime: &'a Path) -> Self {
        Self { state, runtime, settings: None, args: Vec::new(), die_at: None }
    }

    pub fn settings(mut self, settings: Value) -> Self {
        self.settings = Some(settings);
        self
    }

    pub fn args<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.args.extend(args.map(str::to_owned));
        self
    }

    pub fn start(self) -> Agent {
        std::fs::create_dir_all(self.state).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover-memory-guard"));
        // The NRI socket of the test's own containerd, if that has one; never the machine's.
        let nri = self.runtime.with_file_name("nri.sock");
        command.arg("run").arg("--state").arg(self.state).arg("--runtime").arg(self.runtime).arg("--nri").arg(nri).args(&self.args);
        if let Some(settings) = &self.settings {
            let file = self.state.join("settings.json");
            std::fs::write(&file, settings.to_string()).unwrap();
            command.arg("--settings").arg(file);
        }
        // A test that fails shows its log.
        command.env("MEMGUARD_LOG", "info,drover_memory_guard=debug");
        if let Some(point) = self.die_at {
            command.env("MEMGUARD_DIE_AT", point);
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.state.join("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Agent { child, files: Files::of(self.state), state: self.state.to_owned() }
    }
}

impl Agent {
    pub async fn get(&self, path: &str) -> Option<(u16, Vec<u8>)> {
        let stream = tokio::net::UnixStream::connect(self.files.socket()).await.ok()?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let request = http::Request::get(path).header("host", "agent").body(Empty::<hyper::body::Bytes>::new()).unwrap();
        let answer = sender.send_request(request).await.ok()?;
        let code = answer.status().as_u16();
        Some((code, answer.into_body().collect().await.ok()?.to_bytes().to_vec()))
    }

    pub async fn status(&self) -> Option<Status> {
        let (code, body) = self.get("/status").await?;
        (code == 200).then(|| serde_json::from_slice(&body).unwrap())
    }

    /// Waits for a status that fits.
    pub async fn status_when(&self, what: &str, fits: impl Fn(&Status) -> bool) -> Status {
        let began = std::time::Instant::now();
        loop {
            let status = self.status().await;
            if let Some(status) = &status
                && fits(status)
            {
                return status.clone();
            }
            assert!(began.elapsed() < super::PATIENCE, "timed out waiting until {what}: {status:#?}\n{}", self.log());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.state.join("log")).unwrap_or_default()
    }

    /// How many holds its journal names.
    pub fn held(&self) -> usize {
        journal::read(&self.files.journal()).unwrap().len()
    }

    /// Asks it to end, and waits.
    pub async fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().unwrap().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        self.child.wait().await.unwrap();
    }

    /// The pid of its watchdog.
    pub fn watchdog(&self) -> Option<nix::unistd::Pid> {
        let state = self.state.to_str().unwrap().as_bytes().to_vec();
        processes().find(|(_, line)| contains(line, b"watchdog") && contains(line, &state)).map(|(pid, _)| nix::unistd::Pid::from_raw(pid))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        if let Some(pid) = self.watchdog() {
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// All processes with their command lines.
pub fn processes() -> impl Iterator<Item = (i32, Vec<u8>)> {
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, std::fs::read(entry.path().join("cmdline")).ok()?))
    })
}

/// Whether `part` is in `all`.
pub fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}
