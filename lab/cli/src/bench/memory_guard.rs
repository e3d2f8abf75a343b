//! Memory and CPU of the memory guard's agent and of its watchdog, with 100 containers that may all be held.
//!
//! The agent is the program of the same build in the directory of this one. The containers are real cgroups if this process may create them
//! (root), because most of the cost is reading their files; otherwise plain files, which the table says. The container runtime is a fake.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use drover_memory_guard::cgroup::Hierarchy;
use drover_memory_guard::fake::{FakeContainer, FakeRuntime};
use drover_memory_guard::watchdog::StateFiles;
use drover_report::{Check, Report, Table};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::machine::{descendants, usage};
use super::process::beside;
use super::{Size, cell};
use drover::commands::memguard::ask;

/// Time limit for the agent to see its containers.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where cgroups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Measures memory and CPU of the agent.
///
/// # Errors
/// The agent cannot be started, or ends.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let (containers, settle, measured) = size.of((100, 10, 60), (3, 0, 1));
    let node = Node::new(containers)?;
    let fake = FakeRuntime::default();
    let runtime = node.dir.path().join("runtime.sock");
    fake.serve(&runtime)?;
    for number in 0..containers {
        fake.put(&format!("{number:064}"), node.container(number));
    }
    let agent = Agent::start(&node, &runtime)?;
    let socket = agent.files.socket();
    let began = Instant::now();
    while tokio::task::spawn_blocking({
        let socket = socket.clone();
        move || ask(&socket)
    })
    .await?
    .map_or(0, |status| status.containers.len())
        < containers
    {
        ensure!(began.elapsed() < PATIENCE, "the agent does not see its {containers} containers; see {}", agent.log.display());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(settle)).await;
    let pid = agent.child.id();
    let watchdog = descendants(pid).into_iter().find(|child| *child != pid).context("the agent has no dead man's switch")?;
    let (began, before) = (Instant::now(), [usage(pid)?, usage(watchdog)?]);
    tokio::time::sleep(Duration::from_secs(measured)).await;
    let (took, after) = (began.elapsed().as_secs_f64(), [usage(pid)?, usage(watchdog)?]);
    let share = |of: usize| 100.0 * (after[of].cpu - before[of].cpu) / took;
    let mut table = Table::new("memory-guard", ["process", "containers", "cgroups", "memory [MiB]", "% of a core"]);
    for (of, name) in ["agent", "dead man's switch"].into_iter().enumerate() {
        table.row([name, &containers.to_string(), node.kind, &cell(after[of].resident), &cell(share(of))]);
    }
    report.tables.push(table);
    report.checks.push(Check::at_most("memory guard beside 100 containers, memory of the agent", 15.0, after[0].resident, "MiB"));
    let both = share(0) + share(1);
    report.checks.push(Check::at_most("memory guard beside 100 containers, agent and switch, of a core", 1.0, both, "%"));
    Ok(())
}

/// The cgroups of a node with containers.
struct Node {
    dir: TempDir,
    /// Where cgroups are mounted, or the directory that stands for it.
    root: PathBuf,
    /// Path of the node's cgroup below that.
    path: String,
    kind: &'static str,
}

impl Node {
    fn new(containers: usize) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("drover-bench-guard").tempdir()?;
        let path = group_name(std::process::id());
        let mut node = Self { root: CGROUPS.into(), path, kind: "the kernel's", dir };
        if node.in_kernel(containers).is_err() {
            remove_cgroups(std::process::id());
            (node.kind, node.root) = ("plain files", node.dir.path().join("cgroup"));
            node.in_files(containers)?;
        }
        Ok(node)
    }

    fn group(&self, number: usize) -> String {
        format!("{}/kubepods/burstable/pod{number}/{number}", self.path)
    }

    fn container(&self, number: usize) -> FakeContainer {
        let labels = BTreeMap::from([("memguard/pausable".to_owned(), "true".to_owned())]);
        FakeContainer { namespace: "jobs".into(), labels, cgroups_path: format!("/{}", self.group(number)), ..FakeContainer::default() }
    }

    fn in_kernel(&self, containers: usize) -> Result<()> {
        let roots: Vec<PathBuf> = match Hierarchy::detect(&self.root)? {
            // cpu is often a link to cpu,cpuacct.
            Hierarchy::V1(root) => ["memory", "cpu", "freezer"].map(|controller| root.join(controller)).into(),
            Hierarchy::V2(root) => vec![root],
        };
        for root in roots {
            for number in 0..containers {
                let mut below = root.clone();
                for part in self.group(number).split('/') {
                    // On v2 a child has the controllers that its parent hands down.
                    if below.join("cgroup.subtree_control").exists() {
                        fs::write(below.join("cgroup.subtree_control"), "+memory +cpu")?;
                    }
                    below.push(part);
                    if !below.exists() {
                        fs::create_dir(&below)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn in_files(&self, containers: usize) -> Result<()> {
        // As long as a real memory.stat.
        let stat = (0..50).map(|line| format!("counter_{line} 123456789\n")).collect::<String>() + "inactive_file 4096\n";
        let files: [(&str, &str); 6] = [
            ("memory.current", "104857600\n"),
            ("memory.max", "268435456\n"),
            ("memory.high", "max\n"),
            ("memory.stat", &stat),
            ("cgroup.freeze", "0\n"),
            ("cpu.max", "50000 100000\n"),
        ];
        for number in 0..containers {
            let group = self.root.join(self.group(number));
            fs::create_dir_all(&group)?;
            for (name, content) in files {
                fs::write(group.join(name), content)?;
            }
        }
        Ok(fs::write(self.root.join("cgroup.controllers"), "cpu memory\n")?)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        remove_cgroups(std::process::id());
    }
}

/// Name of the cgroup that a benchmark with this process id creates.
fn group_name(pid: u32) -> String {
    format!("drover-bench-{pid}")
}

/// Removes the cgroups that a benchmark with this process id created, if any.
pub fn remove_cgroups(pid: u32) {
    for hierarchy in ["", "memory", "cpu", "freezer"] {
        remove_below(&Path::new(CGROUPS).join(hierarchy).join(group_name(pid)));
    }
}

/// Removes a cgroup and all cgroups below it. The files in them need not be removed.
fn remove_below(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// The running agent.
struct Agent {
    child: Child,
    files: StateFiles,
    log: PathBuf,
}

impl Agent {
    fn start(node: &Node, runtime: &Path) -> Result<Self> {
        let (state, log) = (node.dir.path().join("state"), node.dir.path().join("log"));
        let mut command = Command::new(beside("drover-memory-guard")?);
        command.arg("run").arg("--state").arg(&state).arg("--runtime").arg(runtime).arg("--cgroup-root").arg(&node.root);
        command.args(["--mode", "apply"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
        Ok(Self { child: command.spawn()?, files: StateFiles::of(&state), log })
    }
}

/// Ends the agent with SIGTERM, so that it ends its watchdog, and with SIGKILL if that takes too long.
impl Drop for Agent {
    fn drop(&mut self) {
        let began = Instant::now();
        let _ = kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX)), Signal::SIGTERM);
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
