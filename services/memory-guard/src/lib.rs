//! The memory guard of a node: sees its containers and its memory, carries out what libs/memguard decides, and always lets go again.
//!
//! ```text
//! cgroup files ─┐                                     ┌─▶ journal ─▶ freezer, memory.high, CRI quota
//! /proc/meminfo ┼─▶ Observation ─▶ Guard::step ─▶ Decisions
//! containerd ───┤   (libs/memguard, pure)             └─▶ Events, evictions, taint (API server, optional)
//! API server ───┘
//!                 agent.pulse ─▶ watchdog (second process): lets go of what the journal names when the agent is silent
//! ```
//!
//! Not in here: any decision whom to hold. Invariants: see [`agent`].

pub mod agent;
pub mod api;
pub mod cgroup;
pub mod clock;
pub mod config;
pub mod facts;
pub mod failpoint;
pub mod fake;
pub mod heartbeat;
pub mod http;
pub mod inventory;
pub mod journal;
pub mod levers;
pub mod metrics;
pub mod nri;
pub mod runtime;
pub mod watchdog;
pub mod wire;

/// Made from `proto/` by build.rs.
#[allow(missing_docs, clippy::all, rust_2018_idioms, reason = "generated")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/proto.rs"));
}
