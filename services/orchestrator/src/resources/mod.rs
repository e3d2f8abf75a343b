//! The documents of the project tree, one file per kind: their fields and their validation. What is done with them is in `app`
//! and `workflows`.

pub mod app;
pub mod app_intent;
pub mod call_graph;
pub mod cluster_reference;
pub mod composite_app;
pub mod composite_profile;
pub mod controller;
pub mod controllers;
pub mod dependency;
pub mod deployment_intent_group;
pub mod generic_placement_intent;
pub mod group_intent;
pub mod logical_cloud;
pub mod logical_cloud_parts;
pub mod profile;
pub mod project;
pub mod route;

use drover_resources::DocumentKind;

pub use app::APP;
pub use app_intent::APP_INTENT;
pub use call_graph::CALL_GRAPH;
pub use cluster_reference::CLUSTER_REFERENCE;
pub use composite_app::COMPOSITE_APP;
pub use composite_profile::COMPOSITE_PROFILE;
pub use controller::{CONTROLLER, DTC_CONTROLLER};
use controllers::generic::{CUSTOMIZATION, GENERIC_INTENT, GENERIC_RESOURCE};
use controllers::hpa::{HPA_CONSUMER, HPA_INTENT, HPA_REQUIREMENT};
use controllers::traffic::{INBOUND_CLIENTS_ACCESS_INTENT, INBOUND_CLIENTS_INTENT, INBOUND_SERVER_INTENT, TRAFFIC_GROUP_INTENT};
pub use dependency::DEPENDENCY;
pub use deployment_intent_group::DIG;
pub use generic_placement_intent::GENERIC_PLACEMENT_INTENT;
pub use group_intent::GROUP_INTENT;
pub use logical_cloud::LOGICAL_CLOUD;
pub use logical_cloud_parts::{CLUSTER_QUOTA, LOGICAL_CLOUD_KV, USER_PERMISSION};
pub use profile::PROFILE;
pub use project::PROJECT;
pub use route::ROUTE;

/// All kinds of documents except those of `controllers::kept`, parents first.
pub static KINDS: [&DocumentKind; 29] = [
    &PROJECT,
    &COMPOSITE_APP,
    &APP,
    &DEPENDENCY,
    &CALL_GRAPH,
    &COMPOSITE_PROFILE,
    &PROFILE,
    &LOGICAL_CLOUD,
    &CLUSTER_REFERENCE,
    &USER_PERMISSION,
    &CLUSTER_QUOTA,
    &LOGICAL_CLOUD_KV,
    &DIG,
    &GROUP_INTENT,
    &GENERIC_PLACEMENT_INTENT,
    &APP_INTENT,
    &ROUTE,
    &CONTROLLER,
    &DTC_CONTROLLER,
    &TRAFFIC_GROUP_INTENT,
    &INBOUND_SERVER_INTENT,
    &INBOUND_CLIENTS_INTENT,
    &INBOUND_CLIENTS_ACCESS_INTENT,
    &GENERIC_INTENT,
    &GENERIC_RESOURCE,
    &CUSTOMIZATION,
    &HPA_INTENT,
    &HPA_CONSUMER,
    &HPA_REQUIREMENT,
];
