//! `drover-lab`: benchmarks, experiments, simulators, clusters for trials, and the demo. Not shipped with the product.
//!
//! `drover` runs it for these commands with the same arguments, so people type `drover bench`. It uses the product's library (the
//! stack, the REST client, output); the product uses nothing of it.

pub mod autoscale;
pub mod bench;
pub mod cli;
pub mod data;
pub mod demo;
pub mod dev;
pub mod experiment;
pub mod formats;
pub mod groups;
pub mod load;
pub mod memguard;
