//! Processes of a measure: `drover up` of the same build, and simulated members, whose cost is counted apart.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use url::Url;

use super::machine::{self, Usage};

/// How long a process may take to come up: a thousand members with all their pods take their time.
const PATIENCE: Duration = Duration::from_secs(300);

/// The program of this build that lies beside this one.
///
/// # Errors
/// It was not built.
pub fn beside(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name(name);
    ensure!(program.exists(), "{} is not there: build it as this program was (cargo build … --workspace --bins)", program.display());
    Ok(program)
}

/// A process that ends with this value, in order.
pub struct Program {
    child: Child,
}

impl Program {
    fn start(program: &Path, args: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(args).env_remove("DATABASE_URL");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Self { child })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it takes, Postgres not counted.
    ///
    /// # Errors
    /// It has ended.
    pub fn usage(&self) -> Result<Usage> {
        machine::usage(self.pid())
    }

    /// Ends it in order and waits for the end.
    pub fn stop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap_or(i32::MAX));
        let began = Instant::now();
        if matches!(self.child.try_wait(), Ok(None)) && kill(pid, Signal::SIGTERM).is_ok() {
            while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// The first line on `from` that `found` makes something of. What follows is passed on, for it is about what went wrong.
    fn told<T: Send + 'static>(&self, from: impl Read + Send + 'static, found: impl Fn(&str) -> Option<T> + Send + 'static) -> Result<T> {
        let (send, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut send = Some(send);
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                match found(&line) {
                    Some(told) => drop(send.take().map(|send| send.send(told))),
                    None => eprintln!("  {line}"),
                }
            }
        });
        told.recv_timeout(PATIENCE).map_err(|_| anyhow::anyhow!("a process of the benchmark does not come up; above is what it said"))
    }
}

/// Nobody needs its state any more: killed, and waited for until its Postgres is gone too, which writes in our folder.
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

/// Simulated members to be.
#[derive(Clone, Copy, Debug)]
pub struct Members {
    /// How many.
    pub count: usize,
    /// Nodes of each.
    pub nodes: usize,
    /// Foreign pods of each.
    pub pods: usize,
    /// CPUs of a node.
    pub cpu: u32,
    /// Room for pods of a node.
    pub room: u32,
}

impl Members {
    /// Members with nodes of 8 CPUs and 110 pods.
    pub fn new(count: usize, nodes: usize) -> Self {
        Self { count, nodes, pods: 0, cpu: 8, room: 110 }
    }
}

/// Simulated members, and a kubeconfig of each.
pub struct Simulated {
    /// Their process.
    pub program: Program,
    /// In the order of their numbers.
    pub kubeconfigs: Vec<PathBuf>,
}

/// Starts simulated members.
///
/// # Errors
/// The process does not come up.
pub fn simulate(members: Members, folder: &Path) -> Result<Simulated> {
    let number = |flag: &str, value: usize| [OsString::from(flag), value.to_string().into()];
    let args = ["dev".into(), "sim".into(), "--dir".into(), folder.as_os_str().to_owned()].into_iter();
    let args =
        args.chain(number("--clusters", members.count)).chain(number("--nodes", members.nodes)).chain(number("--pods", members.pods));
    let args = args.chain(number("--cpu", members.cpu as usize)).chain(number("--memory", 4 * members.cpu as usize));
    let mut program = Program::start(&std::env::current_exe()?, args.chain(number("--node-pods", members.room as usize)))?;
    let errors = program.child.stderr.take().context("its stderr is ours")?;
    let told = program.told(errors, |line| line.contains("simulated clusters at").then_some(()));
    told.context("the simulated members")?;
    let kubeconfigs: Vec<PathBuf> = (1..=members.count).map(|at| folder.join(format!("sim-{at}.kubeconfig"))).collect();
    match kubeconfigs.iter().find(|file| !file.exists()) {
        Some(missing) => bail!("{} was not written", missing.display()),
        None => Ok(Simulated { program, kubeconfigs }),
    }
}

/// Starts `drover up` with its state in `data`; where it listens.
///
/// # Errors
/// The process does not come up.
pub fn up(data: &Path) -> Result<(Program, Url)> {
    let args = ["up", "--listen", "127.0.0.1:0", "--log", "warn", "--data"].map(OsString::from).into_iter();
    let mut program = Program::start(&beside("drover")?, args.chain([data.as_os_str().to_owned()]))?;
    let errors = program.child.stderr.take().context("its stderr is ours")?;
    let address = |line: &str| {
        let told = line.contains("Drover is up").then_some(line)?;
        told.split_whitespace().find(|word| word.starts_with("http://")).and_then(|word| Url::parse(word).ok())
    };
    let url = program.told(errors, address).context("drover up")?;
    Ok((program, url))
}
