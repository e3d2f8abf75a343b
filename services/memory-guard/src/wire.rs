//! What the agent tells: the answers of its socket, for `drover memguard` and whoever else asks.

use std::path::PathBuf;

use clap::ValueEnum;
use drover_memguard::{Action, Activity, Permission, Reason};
use serde::{Deserialize, Serialize};

/// What the agent may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing; measures only.
    Off,
    /// Says what it would do.
    #[default]
    Recommend,
    /// Does it.
    Apply,
}

/// `GET /status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Node.
    pub node: String,
    /// What it may do.
    pub mode: Mode,
    /// Why it does not do it although it may.
    pub hindered: Option<String>,
    /// Policy that decides.
    pub policy: String,
    /// Why it is this one.
    pub policy_because: String,
    /// How a start is gated.
    pub gate: Gate,
    /// The runtime, or why it does not answer.
    pub runtime: String,
    /// cgroup version.
    pub cgroup: String,
    /// Where the memory of the node is read.
    pub memory_source: String,
    /// Whether an API server was ever read.
    pub api_server: bool,
    /// How the node is.
    pub pressure: Pressure,
    /// The containers.
    pub containers: Vec<ContainerStatus>,
    /// Since this agent began.
    pub totals: Totals,
}

/// The start gate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// How containers are held at their start: `nri`, `events`, or `none`.
    pub by: String,
    /// Why not in a better way.
    pub why: Option<String>,
    /// Whether another container would be let in now; none without a gate.
    pub open: Option<bool>,
    /// Mean use as a share of the limit, and its standard deviation, as learned so far.
    pub demand: Option<(f64, f64)>,
}

/// `GET /pressure`: what the hub may read. Bytes and seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pressure {
    /// All there is.
    pub capacity: u64,
    /// In use.
    pub used: u64,
    /// Growth of what is in use, in bytes per second, averaged over about five seconds; negative when it shrinks.
    pub growth: f64,
    /// When memory would be exhausted if it went on like that; none if it does not grow.
    pub seconds_to_exhaustion: Option<f64>,
    /// Containers held now: paused, under `memory.high`, or at the gate.
    pub held: u32,
    /// Age of the reading in seconds; older than a second is not to be trusted.
    pub age_seconds: f64,
}

/// A container.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Id.
    pub id: String,
    /// `namespace/pod/container`.
    pub name: String,
    /// Working set in bytes; none if it cannot be read.
    pub memory: Option<u64>,
    /// Limit in bytes.
    pub limit: Option<u64>,
    /// What it may still take, as the bank sees it.
    pub need: Option<u64>,
    /// Growth in bytes per second.
    pub growth: f64,
    /// What it is doing.
    pub activity: Activity,
    /// For how many seconds.
    pub held_seconds: Option<f64>,
    /// Whether it may be touched.
    pub permission: Permission,
    /// The verdict in words.
    pub verdict: String,
    /// What was last decided about it.
    pub last: Option<LastDecision>,
}

/// A decision.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastDecision {
    /// What; none is: held at its start.
    pub action: Option<Action>,
    /// Why.
    pub reason: Reason,
    /// In words.
    pub words: String,
    /// Whether it was done (else it was only recommended, or failed).
    pub done: bool,
    /// How many seconds ago.
    pub seconds_ago: f64,
}

/// Counts since the agent began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Containers paused.
    pub pauses: u64,
    /// Leases of `memory.high`.
    pub leases: u64,
    /// Containers held at the gate.
    pub gated: u64,
    /// Containers sacrificed.
    pub sacrifices: u64,
    /// Containers that died of SIGKILL without the agent having stopped them.
    pub oom_kills: u64,
    /// Episodes (first pause to last release) that ended without such a death.
    pub oom_avoided: u64,
    /// Container-seconds held.
    pub paused_seconds: f64,
    /// Bytes that held containers took all the same.
    pub leaked_bytes: u64,
}

/// Where the agent of this machine answers, unless it is told otherwise.
pub fn default_socket() -> PathBuf {
    PathBuf::from(DEFAULT_STATE).join("agent.sock")
}

/// Where the agent keeps its files. On a tmpfs, because after a reboot nothing is held.
pub const DEFAULT_STATE: &str = "/run/drover-memory-guard";
