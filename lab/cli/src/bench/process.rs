//! Processes of a benchmark: `drover up` of the same build, and simulated members, whose cost is measured separately.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use drover::hub::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use secrecy::ExposeSecret;
use url::Url;

use super::machine::{self, Usage};

/// Time limit for a process to start; a thousand simulated members with all their pods take long.
const PATIENCE: Duration = Duration::from_secs(300);

/// Path of a program in the directory of this one.
///
/// # Errors
/// The program was not built.
pub fn beside(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name(name);
    ensure!(
        program.exists(),
        "{} does not exist: build all programs with `cargo build --workspace --bins` and the same profile",
        program.display()
    );
    Ok(program)
}

/// A running process; killed when dropped.
pub struct Program {
    child: Child,
}

impl Program {
    /// Starts a program in a session of its own, as a service has one: the kernel divides the cores among sessions, and what this process
    /// does for a benchmark would take from the program's share. `setsid` becomes the program.
    fn start(program: &Path, args: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let mut command = Command::new("setsid");
        command.arg(program).args(args).env_remove("DATABASE_URL");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Ok(Self { child: child.context("setsid cannot be started: install util-linux")? })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Memory and CPU of the process, without its Postgres.
    ///
    /// # Errors
    /// The process has ended.
    pub fn usage(&self) -> Result<Usage> {
        machine::usage(self.pid())
    }

    /// Sends SIGTERM and waits until the process has ended, at most a minute.
    pub fn stop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap_or(i32::MAX));
        let began = Instant::now();
        if matches!(self.child.try_wait(), Ok(None)) && kill(pid, Signal::SIGTERM).is_ok() {
            while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Reads lines until `found` returns a value for one, and returns that. Other lines are printed, because they may tell what went wrong.
    async fn told<T: Send + 'static>(
        &self,
        from: impl Read + Send + 'static,
        found: impl Fn(&str) -> Option<T> + Send + 'static,
    ) -> Result<T> {
        let (send, told) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut send = Some(send);
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                match found(&line) {
                    Some(told) => drop(send.take().map(|send| send.send(told))),
                    None => eprintln!("  {line}"),
                }
            }
        });
        match tokio::time::timeout(PATIENCE, told).await {
            Ok(Ok(told)) => Ok(told),
            _ => bail!("a process of the benchmark does not start; its output is above"),
        }
    }
}

/// Kills the process, whose state is no longer needed, and waits until its Postgres, which writes into the same directory, has ended too.
impl Drop for Program {
    fn drop(&mut self) {
        let all = machine::descendants(self.pid());
        let _ = self.child.kill();
        let _ = self.child.wait();
        let began = Instant::now();
        while all.iter().any(|pid| machine::runs(*pid)) && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Specification of simulated members.
#[derive(Clone, Copy, Debug)]
pub struct Members {
    /// Number of members.
    pub count: usize,
    /// Number of nodes of each.
    pub nodes: usize,
    /// Number of pods of each that Drover did not create.
    pub pods: usize,
    /// CPU of each node.
    pub millicores: u32,
    /// Memory of each node.
    pub mebibytes: u32,
    /// Maximum number of pods of each node.
    pub room: u32,
}

impl Members {
    /// Members whose nodes have 8 CPUs and room for 110 pods.
    pub fn new(count: usize, nodes: usize) -> Self {
        Self { count, nodes, pods: 0, millicores: 0, mebibytes: 0, room: 110 }.with_cpu(8)
    }

    /// Members with room for whatever a benchmark of decisions places.
    pub fn roomy(count: usize, nodes: usize) -> Self {
        Self { room: 100_000, ..Self::new(count, nodes).with_cpu(1_000) }
    }

    /// The same with nodes of so many CPUs, and 4 GiB for each of them.
    pub fn with_cpu(self, cpu: u32) -> Self {
        Self { millicores: 1_000 * cpu, mebibytes: 4 * 1_024 * cpu, ..self }
    }
}

/// Running simulated members with their kubeconfigs.
pub struct Simulated {
    /// Process that serves all of them.
    pub program: Program,
    /// Kubeconfigs, ordered by the number of the member.
    pub kubeconfigs: Vec<PathBuf>,
}

/// Starts simulated members.
///
/// # Errors
/// The process does not start.
pub async fn simulate(members: Members, folder: &Path) -> Result<Simulated> {
    let number = |flag: &str, value: usize| [OsString::from(flag), value.to_string().into()];
    let args = ["dev".into(), "sim".into(), "--dir".into(), folder.as_os_str().to_owned()].into_iter();
    let args =
        args.chain(number("--clusters", members.count)).chain(number("--nodes", members.nodes)).chain(number("--pods", members.pods));
    let size = [("--cpu", format!("{}m", members.millicores)), ("--memory", format!("{}Mi", members.mebibytes))];
    let args = args.chain(size.into_iter().flat_map(|(flag, value)| [OsString::from(flag), value.into()]));
    let mut program = Program::start(&std::env::current_exe()?, args.chain(number("--node-pods", members.room as usize)))?;
    let errors = program.child.stderr.take().context("its stderr is ours")?;
    let told = program.told(errors, |line| line.contains("simulated clusters at").then_some(()));
    told.await.context("the simulated members")?;
    let kubeconfigs: Vec<PathBuf> = (1..=members.count).map(|at| folder.join(format!("sim-{at}.kubeconfig"))).collect();
    match kubeconfigs.iter().find(|file| !file.exists()) {
        Some(missing) => bail!("{} was not written", missing.display()),
        None => Ok(Simulated { program, kubeconfigs }),
    }
}

/// Starts `drover up` with its state in `data`; returns it with a client of its gateway.
///
/// # Errors
/// The process does not start.
pub async fn up(data: &Path) -> Result<(Program, Client)> {
    let args = ["up", "--local-clusters", "--listen", "127.0.0.1:0", "--log", "warn", "--data"].map(OsString::from).into_iter();
    let mut program = Program::start(&beside("drover")?, args.chain([data.as_os_str().to_owned()]))?;
    let errors = program.child.stderr.take().context("its stderr is ours")?;
    let address = |line: &str| {
        let told = line.contains("Drover is up").then_some(line)?;
        told.split_whitespace().find(|word| word.starts_with("http://")).and_then(|word| Url::parse(word).ok())
    };
    let url = program.told(errors, address).await.context("drover up")?;
    let token = drover::tokens::of_data(data)?;
    Ok((program, Client::new(url, Some(token.expose_secret().to_owned()))?))
}
