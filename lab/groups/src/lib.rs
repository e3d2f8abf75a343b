//! Group placement outside the product: policies that place whole call graphs, their exact optimum, and the instances that they are
//! measured on.
//!
//! ```text
//! CallGraph ── Grouping ──┐
//! Place, Traffic, Rules ──┴─▶ Instance ──▶ Policy::place ──▶ Placed: where, Terms, group_reports, unplaced
//! ```
//!
//! The product uses the instance, the layout and the objective (`drover_scheduling::groups`, re-exported here); no service depends on
//! this crate. It is pure: it knows indices and loads, no members or claims. Capacity and [`Rules`] always hold; the objective (see
//! [`Terms`]) is minimised. It reconstructs "CGS-DDPG", with corrections where the paper omits a formula or contradicts itself.
//!
//! Terms: a *place* is a node, or a member cluster when groups are distributed over clusters first. A *group* is a set of services that
//! call each other. A *copy* is one replica of every service of the application. A *unit* is what a policy places at once: a container, a
//! group of a copy, or a whole copy.
//!
//! ```
//! use drover_lab_groups::*;
//!
//! // 1. The graph, declared or measured: one service per app of the composite app, calls by name.
//! let service = |name: &str, replicas| Service { name: name.into(), request: [100.0, 200.0], replicas };
//! let graph = CallGraph::named(vec![service("cart", 2), service("cart-db", 1), service("mail", 1)], [("cart", "cart-db", 18.0)])?;
//! // 2. Groups of at most `rho` services. Without `rho` every service is a group of its own.
//! let grouping = Grouping::of(&graph, Some(RHO), Variant::Merge, &Limits::default())?;
//! // 3. Over clusters first: a place is a member (its free room as capacity, or all of it with `taken`), calls cost by latency.
//! let clusters = vec![Place::new("a", [1000.0, 2000.0], 0), Place::new("b", [1000.0, 2000.0], 1)];
//! let instance = Instance::new(&graph, Traffic::Uniform, &grouping, clusters, Rules::default())?.with_distances(vec![0.0, 20.0, 20.0, 0.0])?;
//! // 4. The same again within each member, with its nodes as places and without distances.
//! let placed = policy_named("cgs-search", &Settings::default())?.place(&instance, &Weights::default());
//! assert!(placed.unplaced.is_empty());
//! let cart = &placed.group_reports(&instance)[0]; // which containers share a place, and how many of their calls leave it
//! assert_eq!((cart.members.as_slice(), cart.outside), (&["cart-0".to_owned(), "cart-db-0".to_owned()][..], 0.0));
//! // 5. Later: `instance.running(present places)` with `Rules { moves: Some(n), .. }` places again with at most n moves.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aco;
mod annealing;
mod catalogue;
mod choice;
pub mod ddpg;

mod exact;
pub mod experiment;
mod graph_file;
mod greedy;
pub mod learned;
mod policy;
pub mod roadef;
mod search;

pub use aco::Aco;
pub use annealing::SearchBudget;
pub use catalogue::{RHO, Setting, big, bookinfo, nodes, online_boutique, paper, sock_shop, sock_shop_compose};
pub use choice::{ChoiceError, POLICIES, Settings, policy_named};
pub use drover_scheduling::groups::learned::{LearnedModel, ModelError};
pub use drover_scheduling::groups::{
    Call, CallGraph, Change, Container, EXACT_SERVICES, GraphError, Grouping, GroupingError, Instance, InstanceError, Layout, Limits, Load,
    Place, RESOURCES, Rules, Service, Terms, Traffic, Variant, Weights, used,
};
pub use exact::{DeviationForm, Exact, Proof};
pub use graph_file::{GraphFile, GraphFileError};
pub use greedy::Greedy;
pub use policy::{GroupReport, Placed, Policy};
pub use search::Search;
