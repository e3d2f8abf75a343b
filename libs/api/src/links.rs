//! Links: clusters that Drover cannot reach, whose agent connects to Drover (cluster-manager).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request for an invitation of a cluster's agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvitationOrder {
    /// For how many hours it can be used, 1 to 720; 24 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<u32>,
}

/// What the agent of a cluster (`drover-link`) needs to ask for its first certificate. It is told once, and whoever has it may ask.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct LinkInvitation {
    /// The cluster, as `<provider>+<cluster>`.
    pub cluster: String,
    /// The address to which the agent connects, HOST:PORT.
    pub hub: String,
    /// The authority of the hub's certificate, in PEM. The agent believes no other.
    pub authority: String,
    /// A token that one agent can use.
    pub token: String,
    /// Until when, RFC 3339.
    pub expires: String,
}

/// How far the link of a cluster is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum LinkPhase {
    /// There is no invitation that could be used.
    #[default]
    NotInvited,
    /// An invitation was made and not used yet.
    Invited,
    /// An agent asks for a certificate, and an operator must accept it.
    Waiting,
    /// An agent was accepted.
    Accepted,
    /// The agent's access was taken back.
    Revoked,
}

/// The link of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkState {
    pub phase: LinkPhase,
    /// While it is `waiting`, the fingerprint of the key that asks; the agent prints the same one. When it is `accepted`, that of the agent's
    /// newest key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Until when an invitation can be used, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invitation_expires: Option<String>,
    /// When the agent was accepted, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<String>,
    /// Until when its newest certificate is valid, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expires: Option<String>,
    /// Whether the agent is connected to this process now.
    pub connected: bool,
    /// Since when it has been connected, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_since: Option<String>,
    /// Version of the agent that is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Acceptance of the agent that asks for a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkAcceptance {
    /// The fingerprint of its key. Another one than the one that asks is refused, so that nobody is accepted unseen.
    pub fingerprint: String,
}
