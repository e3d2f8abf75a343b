//! Placing, moving, updating and removing applications, end to end. One test program, so that the real control planes are started once.
#![allow(clippy::unwrap_used, reason = "a scenario is a test, though not a function with the attribute")]

mod e2e {
    pub mod agents;
    pub mod calling;
    pub mod changes;
    pub mod choosing;
    pub mod clouds;
    pub mod databases;
    pub mod drains;
    pub mod experiments;
    pub mod filling;
    pub mod fleets;
    pub mod gateways;
    pub mod growth;
    pub mod kubelets;
    pub mod lifecycle;
    pub mod links;
    pub mod names;
    pub mod page;
    pub mod reaching;
    pub mod refusals;
    pub mod relocating;
    pub mod schedulers;
    pub mod security;
    pub mod stateful;
    pub mod traffic;
}
