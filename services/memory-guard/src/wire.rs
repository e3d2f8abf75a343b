//! The JSON documents that the agent answers on its socket, for `drover memguard` and other clients.

use std::path::PathBuf;

use clap::ValueEnum;
use drover_memguard::{Action, Activity, Permission, Reason};
use serde::{Deserialize, Serialize};

/// What the agent may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Only measure
    Off,
    /// Decide and report, but do nothing
    #[default]
    Recommend,
    /// Carry out the decisions
    Apply,
}

/// The answer to `GET /status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Name of the node.
    pub node: String,
    pub mode: Mode,
    /// Why the agent holds nothing although its mode is `apply`; `None` if nothing prevents it.
    pub hindered: Option<String>,
    /// Name of the policy that decides.
    pub policy: String,
    /// Why it is this policy.
    pub policy_because: String,
    pub gate: GateStatus,
    /// Name and version of the runtime, or why it does not answer.
    pub runtime: String,
    /// `v1` or `v2`.
    pub cgroup: String,
    pub memory_source: String,
    pub api_server: bool,
    pub pressure: Pressure,
    pub containers: Vec<ContainerStatus>,
    pub totals: Totals,
}

/// How starts are gated, and whether the gate is open.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateStatus {
    /// How containers are held at their start: `nri`, `events` or `none`.
    pub by: String,
    /// Why not by a better way.
    pub why: Option<String>,
    /// Whether another container would be admitted now; `None` without a gate.
    pub open: Option<bool>,
    /// Demand factor as learned so far: mean and standard deviation of the working set as a share of the limit.
    pub demand: Option<(f64, f64)>,
}

/// The answer to `GET /pressure`: memory pressure of the node, in bytes and seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pressure {
    pub capacity: u64,
    pub used: u64,
    /// Growth of `used` in bytes per second, averaged over about five seconds; negative when it shrinks.
    pub growth: f64,
    /// Seconds until memory is exhausted at this growth; `None` if it does not grow.
    pub seconds_to_exhaustion: Option<f64>,
    /// Containers held now: paused, leased, or at the start gate.
    pub held: u32,
    /// Age of the reading in seconds. A reading older than a second should not be trusted.
    pub age_seconds: f64,
}

/// The status of one container.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    pub id: String,
    pub name: String,
    /// Working set in bytes; `None` if it cannot be read.
    pub memory: Option<u64>,
    pub limit: Option<u64>,
    /// The memory that it may still take, as the bank computes it, in bytes.
    pub need: Option<u64>,
    pub growth: f64,
    pub activity: Activity,
    /// For how many seconds it has been held; `None` if it is not held.
    pub held_seconds: Option<f64>,
    pub permission: Permission,
    /// `permission` in words.
    pub verdict: String,
    pub last: Option<LastDecision>,
}

/// The last decision about a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastDecision {
    /// `None` means that the container is held at its start.
    pub action: Option<Action>,
    pub reason: Reason,
    /// Action and reason in words.
    pub words: String,
    /// Whether it was carried out; otherwise it was only recommended, or it failed.
    pub done: bool,
    pub seconds_ago: f64,
}

/// Counts since the agent started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    pub pauses: u64,
    /// `memory.high` leases.
    pub leases: u64,
    /// Containers held at the start gate.
    pub gated: u64,
    pub sacrifices: u64,
    /// Containers that died of a SIGKILL which the guard did not send.
    pub oom_kills: u64,
    /// Episodes (first hold to last release) that ended without such a death.
    pub oom_avoided: u64,
    pub paused_seconds: f64,
    /// Bytes that containers allocated while they were held.
    pub leaked_bytes: u64,
}

/// The socket on which the agent of this machine answers by default.
pub fn default_socket() -> PathBuf {
    PathBuf::from(DEFAULT_STATE).join("agent.sock")
}

/// The default state directory. It is on a tmpfs, because after a reboot nothing is held.
pub const DEFAULT_STATE: &str = "/run/drover-memory-guard";
