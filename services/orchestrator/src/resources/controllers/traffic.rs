//! EMCO's traffic intents: which clients may reach which server. They become NetworkPolicies of the server's app, and a route for users
//! outside of the clusters.

use drover_resources::{DocumentKind, Echo, Invalid, NoSpec, Put, Spec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::not_names;
use crate::resources::DIG;
use crate::resources::route::RouteSpec;

/// A server that clients may reach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InboundServerIntentSpec {
    /// The app of the server.
    #[serde(default)]
    pub app: String,
    /// The label of the server's pods: `app=http-server`.
    #[serde(default)]
    pub app_label: String,
    #[serde(default)]
    pub service_name: String,
    /// Port of the pods.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 65535)]
    pub port: i64,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(default)]
    pub protocol: String,
    /// Host name under which users reach the server through the data path, at `port`, if `externalSupport` is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_name: Option<String>,
    /// Whether the server has a route: the address `externalName:port` leads to the port of the Service `serviceName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_support: Option<bool>,
    /// Only empty or `none`: Drover configures no service mesh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_mesh: Option<String>,
    /// Stored; has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub management: Option<Value>,
    /// Stored; has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub external: Option<Value>,
    /// Stored; has no effect.
    #[serde(default, rename = "edgeCNF", skip_serializing_if = "Option::is_none")]
    pub edge_cnf: Option<String>,
}

impl InboundServerIntentSpec {
    /// What the intent asks for that Drover does not do.
    pub fn beyond(&self) -> Option<String> {
        let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty() && text != "none");
        if let Some(mesh) = given(&self.service_mesh) {
            return Some(format!("the service mesh {mesh} is not configured"));
        }
        let route = || self.route().and_then(Result::err).map(|why| format!("there can be no route: {why}"));
        given(&self.edge_cnf).map(|cnf| format!("the edge function {cnf} is not configured")).or_else(route)
    }

    /// The route that the intent asks for; `None` if it asks for none. `Err`: why it cannot be one.
    pub fn route(&self) -> Option<Result<RouteSpec, String>> {
        let host = self.external_name.clone().filter(|host| !host.is_empty() && self.external_support == Some(true))?;
        if self.protocol != "TCP" {
            return Some(Err(format!("the data path carries TCP, not {}", self.protocol)));
        }
        let route = json!({"app": self.app, "service": self.service_name, "servicePort": self.port, "host": host, "port": self.port});
        let route = serde_json::from_value::<RouteSpec>(route).map_err(|error| error.to_string());
        Some(route.and_then(|route| route.validate("").map(|()| route).map_err(|invalid| invalid.to_string())))
    }
}

impl Spec for InboundServerIntentSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let mut reasons = not_names([("app", self.app.as_str()), ("serviceName", &self.service_name)]);
        reasons.extend(label(&self.app_label).err());
        if !(1..=65_535).contains(&self.port) {
            reasons.push(format!("spec.port: {} is not in 1..65535", self.port));
        }
        if !["TCP", "UDP", "SCTP"].contains(&self.protocol.as_str()) {
            reasons.push(format!("spec.protocol: {:?} is not TCP, UDP or SCTP", self.protocol));
        }
        Invalid::unless_empty(reasons)
    }
}

/// Clients that may reach a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InboundClientsIntentSpec {
    /// The app of the clients.
    #[serde(default)]
    pub app: String,
    /// The label of the clients' pods: `app=http-client`.
    #[serde(default)]
    pub app_label: String,
    #[serde(default)]
    pub service_name: String,
    /// Namespaces of the clients; none: that of the server.
    pub namespaces: Vec<String>,
    /// Networks from which clients outside of the cluster come.
    pub cidrs: Vec<String>,
}

impl Spec for InboundClientsIntentSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let mut reasons = not_names([("app", self.app.as_str()), ("serviceName", &self.service_name)]);
        reasons.extend(label(&self.app_label).err());
        for cidr in &self.cidrs {
            let parsed = cidr.split_once('/').and_then(|(ip, bits)| Some((ip.parse::<std::net::IpAddr>().ok()?, bits.parse::<u8>().ok()?)));
            if parsed.is_none_or(|(ip, bits)| bits > if ip.is_ipv4() { 32 } else { 128 }) {
                reasons.push(format!("spec.cidrs: {cidr:?} is not a network such as 10.20.0.0/16"));
            }
        }
        Invalid::unless_empty(reasons)
    }
}

/// Splits a label of pods into key and value.
///
/// # Errors
/// It is not `key=value`.
pub fn label(text: &str) -> Result<(&str, &str), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key, value)),
        _ => Err(format!("spec.appLabel: {text:?} is not key=value")),
    }
}

/// What a client may do with a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InboundClientsAccessIntentSpec {
    /// `ALLOW`
    pub action: String,
    pub url: Vec<String>,
    /// HTTP methods.
    pub access: Vec<String>,
}

impl Spec for InboundClientsAccessIntentSpec {}

/// `traffic-group-intents/{trafficGroupIntent}`
pub static TRAFFIC_GROUP_INTENT: DocumentKind =
    DocumentKind::of::<NoSpec>("traffic-group-intent", "TrafficGroupIntent", "traffic-group-intents", &["trafficGroupIntent"])
        .below(&DIG)
        .echo(Echo::Never)
        .put(Put::Upsert)
        .tag("traffic-intents");

/// `…/inbound-intents/{inboundServerIntent}`
pub static INBOUND_SERVER_INTENT: DocumentKind = DocumentKind::of::<InboundServerIntentSpec>(
    "inbound-server-intent",
    "InboundServerIntent",
    "inbound-intents",
    &["inboundServerIntent"],
)
.below(&TRAFFIC_GROUP_INTENT)
.put(Put::Upsert)
.tag("traffic-intents");

/// `…/clients/{inboundClientsIntent}`
pub static INBOUND_CLIENTS_INTENT: DocumentKind =
    DocumentKind::of::<InboundClientsIntentSpec>("inbound-clients-intent", "InboundClientsIntent", "clients", &["inboundClientsIntent"])
        .below(&INBOUND_SERVER_INTENT)
        .put(Put::Upsert)
        .tag("traffic-intents");

/// `…/access-points/{inboundClientsAccessIntent}`
pub static INBOUND_CLIENTS_ACCESS_INTENT: DocumentKind = DocumentKind::of::<InboundClientsAccessIntentSpec>(
    "inbound-clients-access-intent",
    "InboundClientsAccessIntent",
    "access-points",
    &["inboundClientsAccessIntent"],
)
.below(&INBOUND_CLIENTS_INTENT)
.put(Put::Upsert)
.kept("Drover does not configure a service mesh, which would check addresses and methods of requests")
.tag("traffic-intents");
