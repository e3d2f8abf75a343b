//! A benchmark, or an experiment on clusters, that is interrupted leaves no process and no directory.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time limit against hanging; it judges no speed.
const PATIENCE: Duration = Duration::from_secs(180);

/// Processes that name `folder` on their command line or in their environment: pid and command line. Those that have ended but were not
/// waited for have neither.
fn processes(folder: &Path) -> Vec<(i32, String)> {
    let folder = folder.to_str().unwrap();
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let read = |pid: i32, file: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let named = |pid: i32| {
        let command = read(pid, "cmdline");
        let other = pid != std::process::id().cast_signed();
        (other && (command.contains(folder) || read(pid, "environ").contains(folder))).then_some((pid, command))
    };
    all.filter_map(named).collect()
}

fn until(what: &str, holds: impl Fn() -> bool, said: impl Fn() -> String) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}: {}", said());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// A benchmark that goes on for long.
fn bench() -> Vec<&'static str> {
    [&["bench"][..], &["idle"; 50], &["--size", "small"]].concat()
}

/// What runs when a benchmark on simulated members has begun: services, Postgres and members.
const STACK: [&str; 3] = [" up ", "postgres -D", " dev sim "];

/// Runs `drover` with its temporary files in `folder`; returns once all of `parts` run.
fn start(folder: &Path, command: &[&str], parts: &[&str]) -> Child {
    let mut bench = Command::new(crate::LAB);
    bench.args(command).env("TMPDIR", folder).env_remove("DATABASE_URL");
    let log = std::fs::File::create(folder.with_extension("log")).unwrap();
    let bench = bench.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0).spawn().unwrap();
    let runs = |part: &str| processes(folder).iter().any(|(_, command)| command.contains(part));
    until("it does not start", || parts.iter().all(|part| runs(part)), || log_of(folder));
    bench
}

fn log_of(folder: &Path) -> String {
    std::fs::read_to_string(folder.with_extension("log")).unwrap_or_default()
}

/// Interrupts a command with `interrupt`, which gets its process, and asserts that nothing is left.
fn nothing_is_left_after(command: &[&str], interrupt: impl Fn(&Child, &Path)) -> std::process::ExitStatus {
    nothing_of_it_is_left_after(command, &STACK, interrupt)
}

fn nothing_of_it_is_left_after(command: &[&str], parts: &[&str], interrupt: impl Fn(&Child, &Path)) -> std::process::ExitStatus {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("tmp");
    std::fs::create_dir(&folder).unwrap();
    let mut bench = start(&folder, command, parts);
    interrupt(&bench, &folder);
    let status = bench.wait().unwrap();
    let left = || std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let clean = || processes(&folder).is_empty() && left().is_empty();
    until("something is left", clean, || format!("{:#?}\n{:#?}\n{}", processes(&folder), left(), log_of(&folder)));
    status
}

#[test]
fn interrupted_bench_leaves_nothing() {
    let status = nothing_is_left_after(&bench(), |bench, _| signal(bench.id().cast_signed(), Signal::SIGINT));
    assert_eq!(status.code(), Some(130));
}

#[test]
fn interrupted_experiment_on_clusters_leaves_nothing() {
    let experiment = ["experiment", "occupancy", "--members", "sim", "--draws", "50"];
    let status = nothing_is_left_after(&experiment, |bench, _| signal(bench.id().cast_signed(), Signal::SIGINT));
    assert_eq!(status.code(), Some(130));
}

#[test]
#[ignore = "long: a real kubelet"]
fn interrupted_experiment_on_a_kubelet_leaves_no_node() {
    let status = no_node_is_left_after(|bench, _| signal(bench.id().cast_signed(), Signal::SIGINT));
    assert_eq!(status, Some(Some(130)));
}

#[test]
#[ignore = "long: a real kubelet"]
fn experiment_on_a_kubelet_that_is_interrupted_twice_leaves_no_node() {
    let status = no_node_is_left_after(|bench, folder| {
        let pid = bench.id().cast_signed();
        signal(pid, Signal::SIGINT);
        until("the first Ctrl-C is not heard", || log_of(folder).contains("ending what was started"), || log_of(folder));
        signal(pid, Signal::SIGINT);
    });
    assert_eq!(status, Some(Some(130)));
}

/// Interrupts an experiment on a real kubelet; asserts that neither the node's network namespace nor its cgroups are left. Its exit code;
/// `None` on a machine without Kubernetes.
fn no_node_is_left_after(interrupt: impl Fn(&Child, &Path)) -> Option<Option<i32>> {
    drover_testkit::needs("DROVER_KUBE_BIN")?;
    let node = std::cell::OnceCell::new();
    let experiment = ["experiment", "autoscaling", "--real"];
    let status = nothing_of_it_is_left_after(&experiment, &["kubelet --config"], |bench, folder| {
        node.set(traces_of_the_node(folder)).unwrap();
        interrupt(bench, folder);
    });
    let left = || node.get().unwrap().iter().filter(|path| path.exists()).collect::<Vec<_>>();
    until("the node is left", || left().is_empty(), || format!("{:#?}", left()));
    Some(status.code())
}

/// The network namespace and the cgroups of the node whose kubelet runs in `folder`; they exist.
fn traces_of_the_node(folder: &Path) -> Vec<PathBuf> {
    let kubelet = processes(folder).into_iter().find(|(_, command)| command.contains("kubelet --config")).unwrap().1;
    let words = kubelet.split([' ', '=']).collect::<Vec<_>>();
    let config = words[words.iter().position(|word| *word == "--config").unwrap() + 1];
    let config = std::fs::read_to_string(config).unwrap();
    let name = config.lines().find_map(|line| line.strip_prefix("cgroupRoot: /")).unwrap();
    let controllers = std::fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path().join(name));
    let mut traces: Vec<_> = controllers.filter(|path| path.exists()).collect();
    assert!(!traces.is_empty(), "{name} has no cgroup");
    traces.push(Path::new("/run/netns").join(name));
    assert!(traces.last().unwrap().exists(), "{name} has no network namespace");
    traces
}

#[test]
fn terminated_bench_leaves_nothing() {
    let status = nothing_is_left_after(&bench(), |bench, _| signal(bench.id().cast_signed(), Signal::SIGTERM));
    assert_eq!(status.code(), Some(143));
}

#[test]
fn killed_bench_leaves_nothing() {
    nothing_is_left_after(&bench(), |bench, _| signal(bench.id().cast_signed(), Signal::SIGKILL));
}

#[test]
fn bench_whose_measuring_process_is_killed_leaves_nothing_and_fails() {
    let status = nothing_is_left_after(&bench(), |bench, folder| {
        let parent = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let below = format!(" {} ", bench.id());
        let inner = processes(folder).into_iter().find(|(pid, _)| parent(*pid).rsplit(") ").next().unwrap()[1..].starts_with(&below));
        signal(inner.unwrap().0, Signal::SIGKILL);
    });
    assert_eq!(status.code(), Some(1));
}
