//! Cores of their own for Drover and for its members while something is measured.
//!
//! Members are other machines, and what they do for pods takes no time from Drover. On one machine it does: the kernel divides the cores
//! among sessions, and three control planes, which are fifteen of them, make pods of earlier apps while the next objects are created.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::machine;

/// Processes that are restricted to some of the cores. Dropping it gives all cores back to them.
pub struct Apart {
    /// All cores, as `taskset` takes them.
    all: String,
    roots: Vec<u32>,
}

impl Apart {
    /// Restricts this process with its descendants to one half of the cores, and `members` with theirs to the other. What they start
    /// later is restricted, too.
    ///
    /// # Errors
    /// There is only one core, or `taskset` cannot be used.
    pub fn new(members: &[u32]) -> Result<Self> {
        let all = machine::cores()?;
        ensure!(all.len() > 1, "Drover and its members cannot have cores of their own: this machine has only one");
        let (theirs, ours) = all.split_at(all.len() / 2);
        let this = std::process::id();
        let apart = Self { all: list(&all), roots: members.iter().copied().chain([this]).collect() };
        // This process first: simulated members are its descendants.
        restrict(this, &list(ours))?;
        for root in members {
            restrict(*root, &list(theirs))?;
        }
        Ok(apart)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        for root in &self.roots {
            if let Err(error) = restrict(*root, &self.all) {
                eprintln!("  a process of the benchmark keeps only some of the cores: {error:#}");
            }
        }
    }
}

fn list(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Restricts all threads of a process and of its descendants to these cores.
fn restrict(root: u32, cores: &str) -> Result<()> {
    for pid in machine::descendants(root) {
        let mut taskset = Command::new("taskset");
        taskset.args(["--all-tasks", "--cpu-list", "--pid", cores]).arg(pid.to_string());
        let output = taskset.stdin(Stdio::null()).output().context("taskset cannot be started: install util-linux")?;
        ensure!(output.status.success() || !machine::runs(pid), "taskset: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
