//! The autoscaler of a cluster: the agent that carries out the decisions of libs/autoscaling, and the request path that KPA measures.
//!
//! ```text
//! ScalingPolicy ──┐                                          ┌─▶ scale subresource (mode apply, leader only)
//! pods, scale ────┼─▶ Observation ─▶ decide ─▶ DecisionRecord ┼─▶ status, Events, metrics
//! metrics.k8s.io ─┤                (libs/autoscaling, pure)   └─▶ learned table (ConfigMap)
//! Prometheus ─────┤
//! statistics ◀────┘ POST /v1/statistics from queue-proxies and activators (path/)
//! ```
//!
//! How many pods there should be is decided in libs/autoscaling only. The agent's invariants are described in [`agent`].

pub mod agent;
pub mod config;
pub mod path;
pub mod policy;
pub mod status;
pub mod watch_backoff;
pub mod webhook;
pub mod wire;
