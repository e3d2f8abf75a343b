//! Settings: one flag each, each also an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::wire::{DEFAULT_STATE, Mode};

/// The memory guard of a node: on a node that runs out of memory it pauses containers that are about to allocate, so that none is killed.
#[derive(Debug, Parser)]
#[command(name = "drover-memory-guard", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Guard this node.
    Run(Box<Run>),
    /// The dead man's switch: lets everything go when the agent shows no sign of life. `run` starts one by itself.
    Watchdog(Common),
    /// Let everything go that a dead agent has left held, and end (for ExecStopPost=).
    Thaw(Common),
}

/// What all of them need.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Directory of the journal, the signs of life and the socket; best on a tmpfs.
    #[arg(long, env = "MEMGUARD_STATE", default_value = DEFAULT_STATE, value_name = "DIR")]
    pub state: PathBuf,
    /// Socket of the container runtime.
    #[arg(long, env = "MEMGUARD_RUNTIME", default_value = "/run/containerd/containerd.sock", value_name = "SOCKET")]
    pub runtime: PathBuf,
    /// Time between two looks; 100ms to 250ms on a node, more is slower to react.
    #[arg(long, env = "MEMGUARD_POLL", default_value = "200ms", value_parser = millis, value_name = "TIME")]
    pub poll: Duration,
    /// How long to wait for an answer of the runtime.
    #[arg(long, env = "MEMGUARD_DEADLINE", default_value = "2000ms", value_parser = millis, value_name = "TIME")]
    pub deadline: Duration,
}

/// Policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// `gate-bank` where starts can be gated, else `bank`.
    #[default]
    Auto,
    /// Touches nobody.
    None,
    /// The paper's rule.
    Paper,
    /// Growth only where it fits, the nearest to its limit first.
    Bank,
    /// Starts only where the expected demand fits, and `bank`.
    GateBank,
}

/// Ways to freeze.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FreezeBy {
    /// The freezer file that the runtime itself uses: immediate, and thawing needs nobody.
    #[default]
    Cgroup,
    /// containerd's Tasks.Pause: for runtimes whose containers are no cgroups of this kernel.
    Runtime,
}

/// `run`.
#[derive(Args, Clone, Debug)]
pub struct Run {
    /// Files and the runtime.
    #[command(flatten)]
    pub common: Common,
    /// What it may do.
    #[arg(long, env = "MEMGUARD_MODE", value_enum, default_value_t)]
    pub mode: Mode,
    /// Name of this node, as the API server knows it.
    #[arg(long, env = "MEMGUARD_NODE", default_value = "")]
    pub node: String,
    /// Who decides.
    #[arg(long, env = "MEMGUARD_POLICY", value_enum, default_value_t)]
    pub policy: PolicyName,
    /// File with settings of the policy and the safety rules, as JSON: {"policy": {...}, "safety": {...}}. Goes before --policy.
    #[arg(long, env = "MEMGUARD_SETTINGS", value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// A cgroup that stands for the node (its path below the mount); without it the machine is the node.
    #[arg(long, env = "MEMGUARD_CGROUP", value_name = "PATH")]
    pub cgroup: Option<String>,
    /// The kubelet's `evictionHard` of `memory.available`: it evicts when less is free, so this much is never lent. 0 where no kubelet evicts.
    #[arg(long, env = "MEMGUARD_EVICTION", default_value = "100Mi", value_parser = bytes, value_name = "QUANTITY")]
    pub eviction: u64,
    /// Where cgroups are mounted.
    #[arg(long, env = "MEMGUARD_CGROUP_ROOT", default_value = "/sys/fs/cgroup", value_name = "DIR")]
    pub cgroup_root: PathBuf,
    /// Where proc is mounted: that of the host.
    #[arg(long, env = "MEMGUARD_PROC", default_value = "/proc", value_name = "DIR")]
    pub proc: PathBuf,
    /// Socket of the runtime's NRI: where there is one, containers that do not fit are refused before they exist.
    #[arg(long, env = "MEMGUARD_NRI", default_value = "/var/run/nri/nri.sock", value_name = "SOCKET")]
    pub nri: PathBuf,
    /// How containers are frozen.
    #[arg(long, env = "MEMGUARD_FREEZE_BY", value_enum, default_value_t)]
    pub freeze_by: FreezeBy,
    /// A container paused by quota gets this share of the CPU that it had.
    #[arg(long, env = "MEMGUARD_CRAWL", default_value_t = 1.0 / 45.0, value_parser = share, value_name = "SHARE")]
    pub crawl: f64,
    /// Read pods, Leases and PodDisruptionBudgets and write Events, with this kubeconfig.
    #[arg(long, env = "MEMGUARD_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The same, with the service account of the pod that this is.
    #[arg(long, env = "MEMGUARD_IN_CLUSTER", conflicts_with = "kubeconfig")]
    pub in_cluster: bool,
    /// Taint the node while the gate is closed, so that the scheduler places nothing more here (needs an API server).
    #[arg(long, env = "MEMGUARD_TAINT")]
    pub taint: bool,
    /// Carry sacrifices out through the runtime where there is no API server to ask for an eviction.
    #[arg(long, env = "MEMGUARD_SACRIFICE_BY_RUNTIME")]
    pub sacrifice_by_runtime: bool,
    /// Serve /metrics, /pressure and /healthz here too, for example 127.0.0.1:9464.
    #[arg(long, env = "MEMGUARD_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Do not start a watchdog: another one is started beside this process, on the same directory.
    #[arg(long, env = "MEMGUARD_EXTERNAL_WATCHDOG")]
    pub external_watchdog: bool,
}

fn millis(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix("ms").unwrap_or(text);
    match number.parse() {
        Ok(millis @ 10..=600_000) => Ok(Duration::from_millis(millis)),
        _ => Err("a time in milliseconds from 10ms to 600000ms".to_owned()),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let bytes = drover_quantity::units(text).ok().and_then(|bytes| u64::try_from(bytes).ok());
    bytes.ok_or_else(|| "an amount of memory, for example 100Mi or 0; take evictionHard in per cent of the node's memory".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(|| "a share above 0 and up to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eviction_threshold_is_a_quantity_of_bytes() {
        assert_eq!(bytes("100Mi"), Ok(100 << 20));
        assert_eq!(bytes("0"), Ok(0));
        for wrong in ["5%", "-1Mi", "much"] {
            assert!(bytes(wrong).is_err_and(|error| error.contains("100Mi")), "{wrong}");
        }
    }
}
