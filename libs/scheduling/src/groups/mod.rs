//! Group placement: services that call each other are placed together.
//!
//! ```text
//! CallGraph ── Grouping ──┐
//! Place, Traffic, Rules ──┴─▶ Instance ──▶ Layout ──▶ Terms
//! ```
//!
//! Pure and independent of the rest of the crate: it works on indices and loads, not on members or claims. Capacity and [`Rules`] are
//! constraints; the objective (see [`Terms`]) is minimised. Policies that place a whole instance, their optimum and the experiments are in
//! `lab/groups`.

mod graph;
mod grouping;
mod instance;
mod layout;
pub mod learned;
mod objective;
pub mod observe;
mod partition;
mod refine;
mod top;

pub use graph::{Call, CallGraph, GraphError, Load, RESOURCES, Service};
pub use grouping::{EXACT_SERVICES, Grouping, GroupingError, Limits, Variant};
pub use instance::{Container, Instance, InstanceError, Place, Rules, Traffic};
pub use layout::{Change, Layout, SLACK};
pub use objective::{Terms, Weights, deviation, used};
pub use refine::Refinement;
