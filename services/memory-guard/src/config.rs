//! The command line. Each setting is a flag and also an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::wire::{DEFAULT_STATE, Mode};

/// The memory guard of a node: when memory runs out, it holds the containers that are about to allocate, so that none is killed
#[derive(Debug, Parser)]
#[command(name = "drover-memory-guard", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Guard this node
    Run(Box<Run>),
    /// Run the dead man's switch: it releases every container when the agent's heartbeat stops. `run` starts one by itself
    Watchdog(Common),
    /// Release everything that a dead agent left held, and exit (for ExecStopPost=)
    Thaw(Common),
}

/// The settings that all commands need.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Directory of the journal, the heartbeats and the socket; best on a tmpfs
    #[arg(long, env = "MEMGUARD_STATE", default_value = DEFAULT_STATE, value_name = "DIR")]
    pub state: PathBuf,
    /// Socket of the container runtime
    #[arg(long, env = "MEMGUARD_RUNTIME", default_value = "/run/containerd/containerd.sock", value_name = "SOCKET")]
    pub runtime: PathBuf,
    /// Time between two observations. 100ms to 250ms suits a node; a longer time makes the guard react later
    #[arg(long, env = "MEMGUARD_POLL", default_value = "200ms", value_parser = millis, value_name = "TIME")]
    pub poll: Duration,
    /// Time limit for an answer of the runtime
    #[arg(long, env = "MEMGUARD_DEADLINE", default_value = "2000ms", value_parser = millis, value_name = "TIME")]
    pub deadline: Duration,
}

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// `gate-bank` where starts can be gated, else `bank`
    #[default]
    Auto,
    /// Hold no container
    None,
    /// The paper's rule
    Paper,
    /// Hold containers whose growth does not fit; the one nearest to its limit always runs
    Bank,
    /// Also hold containers at their start while the expected demand does not fit
    GateBank,
}

/// The ways to freeze a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FreezeBy {
    /// Write the freezer file that the runtime itself uses: immediate, and thawing needs no runtime
    #[default]
    Cgroup,
    /// Call containerd's Tasks.Pause, for runtimes whose containers are no cgroups of this kernel
    Runtime,
}

/// The settings of `run`.
#[derive(Args, Clone, Debug)]
pub struct Run {
    #[command(flatten)]
    pub common: Common,
    /// What the guard may do
    #[arg(long, env = "MEMGUARD_MODE", value_enum, default_value_t)]
    pub mode: Mode,
    /// Name of this node in the API server
    #[arg(long, env = "MEMGUARD_NODE", default_value = "")]
    pub node: String,
    /// The policy that decides which containers are held
    #[arg(long, env = "MEMGUARD_POLICY", value_enum, default_value_t)]
    pub policy: PolicyName,
    /// JSON file with the settings of the policy and the safety rules: {"policy": {...}, "safety": {...}}. Takes precedence over --policy
    #[arg(long, env = "MEMGUARD_SETTINGS", value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// A cgroup that is treated as the node (its path below the mount). Without it, the machine is the node
    #[arg(long, env = "MEMGUARD_CGROUP", value_name = "PATH")]
    pub cgroup: Option<String>,
    /// The kubelet's `evictionHard` of `memory.available`: the kubelet evicts pods when less is free, so this much is never lent. 0 where
    /// no kubelet evicts
    #[arg(long, env = "MEMGUARD_EVICTION", default_value = "100Mi", value_parser = bytes, value_name = "QUANTITY")]
    pub eviction: u64,
    /// Directory where cgroups are mounted
    #[arg(long, env = "MEMGUARD_CGROUP_ROOT", default_value = "/sys/fs/cgroup", value_name = "DIR")]
    pub cgroup_root: PathBuf,
    /// Directory where the proc file system of the host is mounted
    #[arg(long, env = "MEMGUARD_PROC", default_value = "/proc", value_name = "DIR")]
    pub proc: PathBuf,
    /// Socket of the runtime's NRI. Where it exists, containers that do not fit are refused before they are created
    #[arg(long, env = "MEMGUARD_NRI", default_value = "/var/run/nri/nri.sock", value_name = "SOCKET")]
    pub nri: PathBuf,
    /// How containers are frozen
    #[arg(long, env = "MEMGUARD_FREEZE_BY", value_enum, default_value_t)]
    pub freeze_by: FreezeBy,
    /// Share of its CPU that a container paused by quota still gets
    #[arg(long, env = "MEMGUARD_CRAWL", default_value_t = 1.0 / 45.0, value_parser = share, value_name = "SHARE")]
    pub crawl: f64,
    /// Kubeconfig with which to read pods, Leases and PodDisruptionBudgets and to write Events
    #[arg(long, env = "MEMGUARD_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Use the service account of the pod that the guard runs in instead of a kubeconfig
    #[arg(long, env = "MEMGUARD_IN_CLUSTER", conflicts_with = "kubeconfig")]
    pub in_cluster: bool,
    /// Taint the node while the start gate is closed, so that the scheduler places no more pods here (needs an API server)
    #[arg(long, env = "MEMGUARD_TAINT")]
    pub taint: bool,
    /// Carry out sacrifices through the runtime where there is no API server to request an eviction from
    #[arg(long, env = "MEMGUARD_SACRIFICE_BY_RUNTIME")]
    pub sacrifice_by_runtime: bool,
    /// Also serve /metrics, /pressure and /healthz on this address, for example 127.0.0.1:9464
    #[arg(long, env = "MEMGUARD_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Do not start a watchdog, because one is started separately on the same directory
    #[arg(long, env = "MEMGUARD_EXTERNAL_WATCHDOG")]
    pub external_watchdog: bool,
}

fn millis(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix("ms").unwrap_or(text);
    match number.parse() {
        Ok(millis @ 10..=600_000) => Ok(Duration::from_millis(millis)),
        _ => Err("expected a time in milliseconds from 10ms to 600000ms".to_owned()),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let bytes = drover_quantity::units(text).ok().and_then(|bytes| u64::try_from(bytes).ok());
    bytes.ok_or_else(|| "expected an amount of memory, for example 100Mi or 0; if evictionHard is a percentage, give that share of the node's memory in bytes".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(|| "expected a share above 0 and at most 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_accepts_quantities_and_refuses_percentages() {
        assert_eq!(bytes("100Mi"), Ok(100 << 20));
        assert_eq!(bytes("0"), Ok(0));
        for wrong in ["5%", "-1Mi", "much"] {
            assert!(bytes(wrong).is_err_and(|error| error.contains("100Mi")), "{wrong}");
        }
    }
}
