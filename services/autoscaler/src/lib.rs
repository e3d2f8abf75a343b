//! The autoscaler of a cluster: carries out what libs/autoscaling decides, and the request path that KPA measures.
//!
//! ```text
//! ScalingPolicy ──┐                                          ┌─▶ scale subresource (mode apply, leader only)
//! pods, scale ────┼─▶ Observation ─▶ decide ─▶ DecisionRecord ┼─▶ status, Events, metrics
//! metrics.k8s.io ─┤                (libs/autoscaling, pure)   └─▶ learned table (ConfigMap)
//! Prometheus ─────┤
//! statistics ◀────┘ POST /v1/statistics from queue-proxies and activators (path/)
//! ```
//!
//! Not in here: any decision how many pods there should be. Invariants: see [`agent`].

pub mod agent;
pub mod config;
pub mod path;
pub mod patience;
pub mod policy;
pub mod status;
pub mod wire;
