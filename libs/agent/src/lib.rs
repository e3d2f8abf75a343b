//! What the agents in clusters and the hub agree upon: by which label a Lease is an agent's, and where the agent's report is in it.
//!
//! The agents write such Leases and renew them; cluster-manager reads all of a member in one request. What a report says is described by
//! `drover_api::agents::AgentReport`, which is added up from it.

/// Label of the Leases of Drover's agents, with the agent's name.
pub const AGENT: &str = "drover.io/agent";
/// Annotation of such a Lease: what the agent reports, in JSON.
pub const REPORT: &str = "drover.io/report";
