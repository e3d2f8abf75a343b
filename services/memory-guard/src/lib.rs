//! The memory guard of a node: reads its containers and its memory, carries out the decisions of libs/memguard, and always releases what
//! it held.
//!
//! ```text
//! cgroup files ─┐                                     ┌─▶ journal ─▶ freezer, memory.high, CRI quota
//! /proc/meminfo ┼─▶ Observation ─▶ Guard::step ─▶ Decisions
//! containerd ───┤   (libs/memguard, pure)             └─▶ Events, evictions, taint (API server, optional)
//! API server ───┘
//!                 agent.pulse ─▶ watchdog (second process): releases what the journal names when the agent is silent
//! ```
//!
//! This crate decides nothing about which containers are held; libs/memguard does. Its invariants are those of [`agent`].

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
mod supervise;
pub mod watchdog;
pub mod wire;

/// Messages, clients and servers that build.rs generates from `proto/`.
#[allow(missing_docs, clippy::all, rust_2018_idioms, reason = "generated")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/proto.rs"));
}
