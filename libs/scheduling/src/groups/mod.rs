//! Group placement: services that call each other go together.
//!
//! ```text
//! CallGraph ── Grouping ──┐
//! Place, Traffic, Rules ──┴─▶ Instance ──▶ Layout ──▶ Terms
//! ```
//!
//! Pure and apart from the rest of the crate: indices and loads, no members or claims. Capacity and [`Rules`] always hold;
//! the objective (see [`Terms`]) is minimised. Policies that place a whole instance, their optimum and experiments: `lab/groups`.

mod graph;
mod grouping;
mod instance;
mod layout;
mod objective;
pub mod observe;
mod partition;

pub use graph::{Call, CallGraph, GraphError, Load, RESOURCES, Service};
pub use grouping::{EXACT_SERVICES, Grouping, GroupingError, Limits, Variant};
pub use instance::{Container, Instance, InstanceError, Place, Rules, Traffic};
pub use layout::{Change, Layout, SLACK};
pub use objective::{Terms, Weights, deviation, used};
