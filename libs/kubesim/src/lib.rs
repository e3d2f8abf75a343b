//! Kubernetes API servers in memory, thousands in one process, for tests and demos of Drover.
//!
//! It serves the part of Kubernetes that Drover uses, like a real server (README.md lists the differences), and is never the
//! only proof: the same [`contract`] runs against a real API server. Nothing is kept when the process ends.
//!
//! Objects are JSON (`store`), changed by plain functions (`api`) behind one lock per cluster (`cluster`), and read by watches
//! from a log (`watch`). Controllers, scheduler and kubelet are functions too, which the driver (`driver`) calls after changes and
//! when timers (`timers`) are due; no task belongs to a cluster, so an idle one costs only its memory.

mod api;
mod apply;
mod clock;
mod cluster;
mod clusters;
mod controllers;
mod defaults;
mod discovery;
mod driver;
mod duration;
mod effects;
mod error;
mod faults;
mod frozen;
mod key;
mod kinds;
mod kubelet;
mod metrics;
mod nodes;
mod object;
mod patch;
mod pods;
mod quantity;
mod quota;
mod request;
mod route;
mod scheduler;
mod schema;
mod selectors;
mod server;
mod sim;
mod spec;
mod standin;
mod state;
mod store;
mod target;
mod tenants;
mod timers;
mod validation;
mod watch;

pub mod contract;
pub mod dev;

pub use effects::{Effect, Operation, ReadyRecorder};
pub use error::ApiError;
pub use faults::Fault;
pub use key::Key;
pub use sim::Sim;
pub use spec::{ClusterSpec, NodeSpec};
pub use standin::{StandIn, stand_in};
