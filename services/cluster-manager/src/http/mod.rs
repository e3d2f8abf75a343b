//! Handlers of what is no plain document. Documents are served by libs/resources.

pub mod agents;
pub mod checks;
pub mod clusters;
pub mod cordon;
pub mod kv_pairs;
pub mod labels;
pub mod link_agents;
pub mod links;
pub mod members;
pub mod networks;
pub mod pods;
