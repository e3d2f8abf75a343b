//! The documents of cluster-manager, declared.

pub mod cluster;
pub mod controller;
pub mod kv_pair;
pub mod provider;

use drover_resources::Kind;

/// All of them.
pub static KINDS: &[&Kind] = &[&provider::PROVIDER, &cluster::CLUSTER, &kv_pair::KV_PAIR, &controller::CONTROLLER];
