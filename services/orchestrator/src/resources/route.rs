//! Routes: a stable address before a Kubernetes Service of an app, wherever the app runs (docs/how-to/traffic.md).

use drover_api::traffic::{GatewayRef, RouteProtocol, TrafficTarget};
use drover_resources::{DocumentKind, Invalid, Place, Put, Reference, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{APP, COMPOSITE_APP, DIG};

/// Longest time for which a request may wait for a pod.
const MAX_HOLD: u16 = 60;
/// Longest pause and longest drain of a shift.
const MAX_SECONDS: u32 = 3_600;

/// An address at which users reach an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteSpec {
    /// The app whose Service it is.
    pub app: String,
    /// Name of the Kubernetes Service.
    pub service: String,
    /// Number or name of the Service's port.
    #[serde(rename = "servicePort")]
    pub service_port: ServicePort,
    /// `http` (default; also HTTP/2, gRPC and WebSocket), `https` or `tcp`.
    #[serde(default)]
    pub protocol: RouteProtocol,
    /// Host name of the requests, or `*.` and a domain for all names of one level. None: every name that no other route of the port
    /// has. A tcp route has none, an https route needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Port at which clients connect.
    #[schema(minimum = 1)]
    pub port: u16,
    /// Seconds for which a request or connection waits when no pod can take it; default 10, at most 60.
    #[serde(default = "default_hold", rename = "holdSeconds")]
    pub hold_seconds: u16,
    /// Whether the app may run in clusters in which the data path does not reach it, where the route leads nowhere. By default it is
    /// neither placed nor moved there.
    #[serde(default, rename = "allowOutOfReach", skip_serializing_if = "std::ops::Not::not")]
    pub allow_out_of_reach: bool,
    /// An `HTTPRoute` of the Gateway API in a cluster that carries the traffic instead of Drover's data path. Drover sets the weights of its
    /// backends that lead to the copies of the app: those with the name of the Service in the gateway's own cluster, and
    /// `SERVICE-PROVIDER-CLUSTER` for other clusters. Host and port are then only for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayRef>,
    /// How traffic goes to the new copy when the app is moved.
    #[serde(default)]
    pub shift: ShiftSpec,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ServicePort {
    Number(u16),
    Name(String),
}

impl std::fmt::Display for ServicePort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// How traffic goes to the new copy of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShiftSpec {
    /// Percent of new requests that the new copy gets, one after the other; 100 follows by itself. Default: all at once.
    #[serde(default)]
    pub steps: Vec<u16>,
    /// Seconds between two steps; default 10.
    #[serde(default = "default_pause", rename = "pauseSeconds")]
    pub pause_seconds: u32,
    /// The traffic goes back, and the move is undone, when so many percent more requests fail at the new copy than at the old one;
    /// default 1.
    #[serde(default = "default_budget", rename = "errorBudgetPercent")]
    pub error_budget_percent: u16,
    /// Seconds that requests and connections at the old copy may still take; default 30.
    #[serde(default = "default_drain", rename = "drainSeconds")]
    pub drain_seconds: u32,
}

fn default_hold() -> u16 {
    10
}

fn default_pause() -> u32 {
    10
}

fn default_budget() -> u16 {
    1
}

fn default_drain() -> u32 {
    30
}

impl Default for ShiftSpec {
    fn default() -> Self {
        Self { steps: Vec::new(), pause_seconds: default_pause(), error_budget_percent: default_budget(), drain_seconds: default_drain() }
    }
}

impl ShiftSpec {
    /// The shares of the new copy, the last of which is 100.
    pub fn shares(&self) -> Vec<u16> {
        self.steps.iter().copied().filter(|share| *share < 100).chain([100]).collect()
    }
}

impl RouteSpec {
    /// What carries it.
    pub fn target(&self) -> TrafficTarget {
        if self.gateway.is_some() { TrafficTarget::Gateway } else { TrafficTarget::DataPath }
    }

    /// Whether only one of both can be served: a port of the data path carries one protocol, and an address leads to one app.
    pub fn excludes(&self, other: &Self) -> bool {
        if self.gateway.is_some() || other.gateway.is_some() {
            return false;
        }
        let host = |route: &Self| route.host.as_deref().map(str::to_ascii_lowercase);
        self.port == other.port && (self.protocol != other.protocol || self.protocol == RouteProtocol::Tcp || host(self) == host(other))
    }

    /// `host:port`, for people.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host.as_deref().unwrap_or_default(), self.port)
    }
}

impl Spec for RouteSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let mut reasons = Vec::new();
        match (self.protocol, &self.host) {
            (RouteProtocol::Tcp, Some(_)) => reasons.push("spec.host: a tcp route has no host name, only a port".to_owned()),
            (RouteProtocol::Https, None) => reasons.push("spec.host: an https route needs a host name, for its certificate".to_owned()),
            (_, Some(host)) if !is_host(host) => {
                reasons.push(format!("spec.host: {host:?} is not a host name such as shop.example.org or *.example.org"));
            }
            _ => {}
        }
        if let Some(gateway) = &self.gateway {
            let names = [gateway.cluster.provider(), gateway.cluster.cluster(), &gateway.namespace, &gateway.http_route];
            if names.iter().any(|name| name.is_empty()) {
                reasons.push("spec.gateway needs cluster (provider+cluster), namespace and httpRoute".to_owned());
            }
            if self.protocol == RouteProtocol::Tcp {
                reasons.push("spec.gateway: an HTTPRoute carries no tcp route".to_owned());
            }
        }
        if self.port == 0 {
            reasons.push("spec.port must be from 1 to 65535".to_owned());
        }
        if self.service.is_empty() {
            reasons.push("spec.service must not be empty".to_owned());
        }
        if self.hold_seconds > MAX_HOLD {
            reasons.push(format!("spec.holdSeconds must be at most {MAX_HOLD}"));
        }
        if !self.shift.steps.is_sorted_by(|one, next| one < next) || self.shift.steps.iter().any(|share| !(1..=100).contains(share)) {
            reasons.push("spec.shift.steps must grow, from 1 to 100".to_owned());
        }
        if self.shift.pause_seconds > MAX_SECONDS || self.shift.drain_seconds > MAX_SECONDS {
            reasons.push(format!("spec.shift: pauseSeconds and drainSeconds must be at most {MAX_SECONDS}"));
        }
        if self.shift.error_budget_percent > 100 {
            reasons.push("spec.shift.errorBudgetPercent must be at most 100".to_owned());
        }
        Invalid::unless_empty(reasons)
    }

    fn references(&self, at: &Place<'_>) -> Vec<Reference> {
        let composite_app = COMPOSITE_APP.within(at.path).unwrap_or_default();
        vec![Reference { field: "spec.app", path: format!("{composite_app}/{}/{}", APP.segment, self.app) }]
    }
}

/// A DNS name, or `*.` and one.
fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// `routes/{route}`
pub static ROUTE: DocumentKind =
    DocumentKind::of::<RouteSpec>("route", "Route", "routes", &["route"]).below(&DIG).put(Put::Upsert).tag("routes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names() {
        for good in ["shop.example", "a", "*.example.org", "x-1.example.org", "_acme.example"] {
            assert!(is_host(good), "{good}");
        }
        for bad in ["", "-a.example", "a..b", "a b", "shop.example:80", "*", "*.", "http://a"] {
            assert!(!is_host(bad), "{bad}");
        }
    }

    #[test]
    fn hundred_percent_is_always_last() {
        let shares = |steps: &[u16]| ShiftSpec { steps: steps.into(), ..ShiftSpec::default() }.shares();
        assert_eq!((shares(&[]), shares(&[10, 50]), shares(&[10, 100])), (vec![100], vec![10, 50, 100], vec![10, 100]));
    }
}
