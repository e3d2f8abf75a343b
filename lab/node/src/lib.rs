//! Runs the memory guard with real containers on this machine: a private containerd, a memory-limited cgroup as the node, the paper's jobs
//! as real processes, the real OOM killer, and the agent as its own process. Used by `drover experiment memory-guard --real` and by the
//! tests of the memory guard. The tests of this crate check the scripts of real nodes (`deploy/local-kube/node`).
//!
//! The agent itself uses nothing of this crate. Invariant: nothing else on the machine is changed, and everything that a value started has
//! ended when the value is dropped.

mod agent;
mod containerd;
mod image;
mod pods;
mod processes;
mod trial;
mod workflow;

use std::path::Path;
use std::time::Duration;

pub use agent::{Agent, Start};
pub use containerd::{Containerd, Pod, Spec, Version, thaw_below};
pub use image::{IMAGE, image};
pub use processes::{contains, processes};
pub use trial::{JOBS, POLICIES, SWITCH, Trial, trial};
pub use workflow::{Outcome, workflow};

use drover_memory_guard::cgroup::Hierarchy;

/// Time limit against hanging; it judges no speed.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Where the cgroups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
/// The needed programs and their Debian packages.
const PROGRAMS: [(&str, &str); 5] =
    [("containerd", "containerd"), ("ctr", "containerd"), ("runc", "runc"), ("cc", "gcc libc6-dev"), ("python3", "python3")];

/// What the machine lacks, each with what to do about it; empty if nothing is missing.
pub fn lacking() -> Vec<String> {
    let dirs = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"];
    let there = |program: &str| dirs.iter().any(|dir| Path::new(dir).join(program).exists());
    let cgroups = Hierarchy::detect(Path::new(CGROUPS)).is_ok();
    lacks(nix::unistd::geteuid().is_root(), cgroups, there)
}

fn lacks(root: bool, cgroups: bool, there: impl Fn(&str) -> bool) -> Vec<String> {
    let mut lacks = Vec::new();
    if !root {
        lacks.push("root (it makes cgroups and containers; run it with sudo)".to_owned());
    }
    if !cgroups {
        lacks.push("a cgroup memory controller below /sys/fs/cgroup".to_owned());
    }
    let missing: Vec<(&str, &str)> = PROGRAMS.into_iter().filter(|(program, _)| !there(program)).collect();
    if !missing.is_empty() {
        let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
        let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
        packages.dedup();
        lacks.push(format!("{} (apt-get install -y --no-install-recommends {})", programs.join(", "), packages.join(" ")));
    }
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacks_names_what_is_missing_and_what_to_install() {
        assert!(lacks(true, true, |_| true).is_empty());
        let all = lacks(false, false, |program| program == "python3").join("; ");
        assert!(all.contains("root") && all.contains("cgroup"), "{all}");
        assert!(
            all.contains("containerd, ctr, runc, cc (apt-get install -y --no-install-recommends containerd runc gcc libc6-dev)"),
            "{all}"
        );
    }
}
