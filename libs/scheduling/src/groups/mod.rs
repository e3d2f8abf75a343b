//! Group placement: services that call each other go together, measured against the optimum.
//!
//! ```text
//! CallGraph ── Grouping ──┐
//! Place, Traffic, Rules ──┴─▶ Instance ──▶ Policy::place ──▶ Placed: where, Terms, stories, unplaced
//! ```
//!
//! Pure and apart from the rest of the crate: indices and loads, no members or claims. Capacity and [`Rules`] always hold;
//! the objective (see [`Terms`]) is a wish. Rebuilt after "CGS-DDPG", with what its text omits or has wrong put right.
//!
//! # How the product uses it
//!
//! ```
//! use drover_scheduling::groups::*;
//!
//! // 1. The graph, declared or measured: one service per app of the composite app, calls by name.
//! let service = |name: &str, replicas| Service { name: name.into(), request: [100.0, 200.0], replicas };
//! let graph = CallGraph::named(vec![service("cart", 2), service("cart-db", 1), service("mail", 1)], [("cart", "cart-db", 18.0)])?;
//! // 2. Groups; `rho` none: nobody belongs together. `explain` compares several.
//! let grouping = Grouping::of(&graph, Some(RHO), Variant::Merge, &Limits::default())?;
//! // 3. Over clusters first: a place is a member (its free room as capacity, or all of it with `taken`), calls cost by latency.
//! let clusters = vec![Place::new("a", [1000.0, 2000.0], 0), Place::new("b", [1000.0, 2000.0], 1)];
//! let instance = Instance::new(&graph, Traffic::Uniform, &grouping, clusters, Rules::default())?.with_distances(vec![0.0, 20.0, 20.0, 0.0])?;
//! // 4. Inside each member the same again with its nodes as places and without distances.
//! let placed = policy_named("cgs-search", &Settings::default())?.place(&instance, &Weights::default());
//! assert!(placed.unplaced.is_empty());
//! let cart = &placed.stories(&instance)[0]; // who sits where and which calls leave
//! assert_eq!((cart.members.as_slice(), cart.outside), (&["cart-0".to_owned(), "cart-db-0".to_owned()][..], 0.0));
//! // 5. Later: `instance.running(where they are)` with `Rules { moves: Some(n), .. }` re-places with at most n moves.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aco;
mod catalogue;
mod choice;
pub mod ddpg;
mod exact;
pub mod experiment;
mod graph;
mod greedy;
mod grouping;
mod instance;
mod layout;
mod objective;
pub mod observe;
mod partition;
mod policy;
pub mod roadef;
mod search;

pub use aco::Aco;
pub use catalogue::{RHO, Setting, big, bookinfo, nodes, online_boutique, paper, sock_shop, sock_shop_compose};
pub use choice::{ChoiceError, POLICIES, Settings, policy_named};
pub use exact::{Exact, Form, Proof};
pub use graph::{Call, CallGraph, GraphError, Load, RESOURCES, Service};
pub use greedy::Greedy;
pub use grouping::{EXACT_SERVICES, Grouping, GroupingError, Limits, Variant};
pub use instance::{Container, Instance, InstanceError, Place, Rules, Traffic};
pub use layout::{Change, Layout};
pub use objective::{Terms, Weights, used};
pub use policy::{GroupStory, Placed, Policy};
pub use search::{Budget, Search};
