//! The kinds of documents that cluster-manager owns.

pub mod agent;
pub mod cluster;
pub mod controller;
pub mod kv_pair;
pub mod networks;
pub mod provider;

use drover_resources::DocumentKind;

/// All kinds.
pub static KINDS: &[&DocumentKind] = &[
    &agent::AGENT,
    &provider::PROVIDER,
    &cluster::CLUSTER,
    &kv_pair::KV_PAIR,
    &controller::CONTROLLER,
    &networks::NETWORK,
    &networks::PROVIDER_NETWORK,
    &networks::CA_CERT,
    &networks::CA_CERT_CLUSTER,
    &networks::CLUSTER_SYNC_OBJECT,
];
