//! What agent and hub say to each other before the streams begin.

use serde::{Deserialize, Serialize};

/// The name in the hub's certificate, whatever its address is.
pub const HUB: &str = "hub.drover.internal";
/// The only destination that a hub can ask for.
pub const API_SERVER: &str = "api-server:443";
/// The protocol to which a connection changes that carries streams (`Upgrade`).
pub const PROTOCOL: &str = "drover-link";
/// What begins the name that agents give to themselves (`User-Agent`), before their version.
pub const AGENT: &str = "drover-link/";
/// Where a certificate is asked for with an invitation.
pub const ENROL: &str = "/v1/enrol";
/// Where a certificate is renewed.
pub const RENEW: &str = "/v1/renew";
/// Where a connection changes sides.
pub const LINK: &str = "/v1/link";

/// What an operator gives to an agent: `drover cluster invite` writes it (`LinkInvitation` of libs/api).
#[derive(Deserialize)]
pub struct Invitation {
    /// The cluster, as `<provider>+<cluster>`; only for people.
    pub cluster: String,
    /// Address of the hub, HOST:PORT.
    pub hub: String,
    /// The authority of the hub's certificate, in PEM. The agent believes no other.
    pub authority: String,
    /// One agent can use it.
    pub token: String,
}

/// Request for a first certificate. It is repeated, with the same key, until an operator has accepted it.
#[derive(Serialize, Deserialize)]
pub struct Enrolment {
    /// The token of the invitation.
    pub token: String,
    /// A request for a certificate (PKCS#10) in PEM.
    pub request: String,
}

/// Request for the next certificate.
#[derive(Serialize, Deserialize)]
pub struct Renewal {
    /// A request for a certificate (PKCS#10) in PEM.
    pub request: String,
}

/// The answer to both.
#[derive(Default, Serialize, Deserialize)]
pub struct Issued {
    /// The certificate in PEM. None: no operator has accepted the request yet; ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The authority that has signed it, in PEM: the agent believes this one from now on, and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
}
