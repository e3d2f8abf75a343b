//! The machine: hardware, load, and memory and CPU of processes, all read from /proc.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use drover_report::Table;

use super::{cell, spread};

/// Clock ticks per second in `/proc/<pid>/stat`; fixed on Linux.
const TICKS: f64 = 100.0;

/// A table of hardware, kernel, speed of the disk, load and build.
///
/// # Errors
/// /proc or the temporary directory cannot be used.
pub async fn describe() -> Result<Table> {
    let [processor, memory] = hardware()?;
    let kernel = read("/proc/sys/kernel/osrelease")?;
    let sync = tokio::task::spawn_blocking(fdatasync).await??;
    let [p50, _, p99, _] = spread(&sync);
    let mut table = Table::new("machine", ["what", "is"]);
    table.row(["processor", &processor]);
    table.row(["memory", &memory]);
    table.row(["kernel", kernel.trim()]);
    table.row(["fdatasync of 8 KiB", &format!("{} ms, p99 {} ms", cell(p50), cell(p99))]);
    table.row(["load before", &load()]);
    table.row(["build", &build()]);
    Ok(table)
}

/// Processor and memory.
fn hardware() -> Result<[String; 2]> {
    let cpuinfo = read("/proc/cpuinfo")?;
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).map_or("?", |model| model.trim_start_matches(['\t', ':', ' ']));
    let memory = kib(&read("/proc/meminfo")?, "MemTotal:") / (1 << 20) as f64;
    Ok([format!("{} × {model}", std::thread::available_parallelism()?), format!("{memory:.0} GiB")])
}

/// Hardware, build and load in a line, for experiments that depend on nothing else of the machine.
///
/// # Errors
/// /proc cannot be used.
pub fn line() -> Result<String> {
    let [processor, memory] = hardware()?;
    Ok(format!("machine: {processor}, {memory}; build: {}; load before: {}", build(), load()))
}

/// Version, profile and commit of this build. `make` passes the commit on; it is not compiled in, so that a commit rebuilds nothing.
pub fn build() -> String {
    let profile = if cfg!(debug_assertions) { "development" } else { "optimised" };
    let commit = std::env::var("DROVER_COMMIT").unwrap_or_else(|_| "unknown".to_owned());
    format!("{}, {profile}, commit {commit}", env!("CARGO_PKG_VERSION"))
}

/// Load averages of 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Durations of 100 synchronous writes of 8 KiB to the disk of the temporary directory, which is what a commit waits for.
fn fdatasync() -> Result<Vec<Duration>> {
    let mut file = tempfile::tempfile()?;
    let sync = |_| {
        let began = Instant::now();
        file.write_all(&[7; 8192])?;
        file.sync_data()?;
        Ok(began.elapsed())
    };
    (0..100).map(sync).collect()
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// The number of KiB in a line of a /proc file.
fn kib(text: &str, field: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN)
}

/// Memory and CPU of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Resident memory in MiB.
    pub resident: f64,
    /// CPU seconds since it started.
    pub cpu: f64,
}

/// Memory and CPU of one process, without its children.
///
/// # Errors
/// The process has ended.
pub fn usage(pid: u32) -> Result<Usage> {
    let status = read(&format!("/proc/{pid}/status"))?;
    Ok(Usage { resident: kib(&status, "VmRSS:") / 1024.0, cpu: cpu(pid).context("it has ended")? })
}

/// CPU seconds of the Postgres processes below `pid`, including those that have ended.
pub fn postgres_cpu(pid: u32) -> f64 {
    let below: Vec<u32> = descendants(pid);
    below.into_iter().filter(|pid| name(*pid).is_some_and(|name| name == "postgres")).filter_map(cpu_with_children).sum()
}

/// CPU seconds of the threads of this process with this name.
pub fn threads_cpu(named: &str) -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return f64::NAN };
    let cpu = |path: std::path::PathBuf| {
        let comm = std::fs::read_to_string(path.join("comm")).ok()?;
        let nanoseconds: f64 = std::fs::read_to_string(path.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()?;
        (comm.trim() == named).then_some(nanoseconds / 1e9)
    };
    tasks.filter_map(|task| cpu(task.ok()?.path())).sum()
}

/// The cores that this process may use.
///
/// # Errors
/// /proc cannot be used.
pub fn cores() -> Result<Vec<usize>> {
    let status = read("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    core_list(list).with_context(|| format!("not a list of cores: {list}"))
}

/// The numbers of a list such as `0-2,5`.
fn core_list(list: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cores.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(cores)
}

/// Whether there is a process with this id that is not a zombie.
pub fn runs(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields.first().is_some_and(|state| state != "Z"))
}

/// A process and all its descendants, the process itself first.
pub fn descendants(pid: u32) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let all: Vec<(u32, u32)> = processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| Some((pid, stat(pid)?.get(1)?.parse().ok()?)))
        .collect();
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        at += 1;
    }
    found
}

fn name(pid: u32) -> Option<String> {
    Some(std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned())
}

/// Fields of `/proc/<pid>/stat` after the name, which may hold spaces and brackets: state, parent, … The first is field 3 of proc(5).
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// CPU seconds of a process (`utime` and `stime`).
fn cpu(pid: u32) -> Option<f64> {
    ticks(pid, &[11, 12])
}

/// The same with those of its children that have ended and were waited for (`cutime` and `cstime`).
fn cpu_with_children(pid: u32) -> Option<f64> {
    ticks(pid, &[11, 12, 13, 14])
}

/// The sum of these [`stat`] fields, in seconds.
fn ticks(pid: u32, fields: &[usize]) -> Option<f64> {
    let stat = stat(pid)?;
    let each = fields.iter().map(|at| stat.get(*at)?.parse::<f64>().ok());
    Some(each.sum::<Option<f64>>()? / TICKS)
}

/// CPU seconds of all processes of the machine since it started.
pub fn busy() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<f64> =
        text.lines().next().unwrap_or_default().split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, …
    (fields.iter().take(8).sum::<f64>() - fields.iter().skip(3).take(2).sum::<f64>()) / TICKS
}

#[cfg(test)]
mod tests {
    use super::core_list;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(core_list("\t0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(core_list("3"), Some(vec![3]));
        assert_eq!(core_list(""), None);
        assert_eq!(core_list("0-"), None);
    }
}
