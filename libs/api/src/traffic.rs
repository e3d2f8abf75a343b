//! Users' traffic: routes (from orchestrator), the endpoints of copies (from resource-synchronizer), and what the processes of the data
//! path report.

use std::net::SocketAddr;

use drover_scheduling::MemberKey;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// What a route carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RouteProtocol {
    /// HTTP/1.1, HTTP/2 without TLS, gRPC, WebSocket.
    #[default]
    Http,
    /// The same with TLS, which ends in the data path.
    Https,
    /// Any protocol over TCP.
    Tcp,
}

impl RouteProtocol {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
        }
    }
}

/// What carries a route: the seam between the moves of apps and that through which users' requests go. A target follows the feed `routes`
/// of orchestrator, gives each copy its weight, and tells in a feed `traffic` of its own what it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TrafficTarget {
    /// The processes of Drover's own data path.
    #[default]
    DataPath,
    /// An `HTTPRoute` in a member, by resource-synchronizer.
    Gateway,
}

/// An `HTTPRoute` of the Gateway API, whose backends get the weights of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayRef {
    /// The cluster in which it is, as `provider+cluster`.
    pub cluster: MemberKey,
    pub namespace: String,
    pub http_route: String,
}

impl std::fmt::Display for GatewayRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HTTPRoute {}/{} in {}", self.namespace, self.http_route, self.cluster)
    }
}

impl GatewayRef {
    /// The name of the backends that lead to the copy of an app in a member: the Service itself in the gateway's own cluster, and
    /// `SERVICE-PROVIDER-CLUSTER` for other clusters.
    pub fn backend(&self, service: &str, member: &MemberKey) -> String {
        match *member == self.cluster {
            true => service.to_owned(),
            false => format!("{service}-{}-{}", member.provider(), member.cluster()),
        }
    }
}

/// A route as the data path carries it out (feed `routes` of orchestrator; the key is the id).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteTable {
    /// Id of the route's document.
    pub id: Uuid,
    /// For people: `project/application/route`.
    pub name: String,
    pub protocol: RouteProtocol,
    /// Host name of the requests; none: every name that no other route of this port has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Port at which clients connect.
    pub port: u16,
    /// Name of the Kubernetes Service.
    pub service: String,
    /// Name of the Service's port as EndpointSlices have it; empty for the only port of a Service.
    #[serde(default, alias = "service_port")]
    pub service_port: String,
    /// Path of the HTTP request that tells whether an endpoint answers; none: a connection tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
    /// Seconds for which a request waits if no endpoint can take it.
    #[serde(alias = "hold_seconds")]
    pub hold_seconds: u16,
    /// The `HTTPRoute` that carries it instead of the data path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayRef>,
    /// The copies of the app.
    pub backends: Vec<RouteBackend>,
}

/// A copy of a route's app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteBackend {
    pub binding: Uuid,
    pub member: MemberKey,
    /// Its share of new requests and connections, in relation to the other copies. 0: none, but its endpoints are probed.
    pub weight: u16,
}

/// The endpoints of a copy of an app (feed `endpoints` of resource-synchronizer; the key is the binding).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyEndpoints {
    pub binding: Uuid,
    pub member: MemberKey,
    /// By Service and port.
    pub ports: Vec<PortEndpoints>,
}

/// The endpoints of one port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortEndpoints {
    pub namespace: String,
    pub service: String,
    /// Name of the port; empty for the only port of a Service.
    #[serde(default)]
    pub port: String,
    /// What the Service says of the protocol, for example `kubernetes.io/h2c`.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "app_protocol")]
    pub app_protocol: Option<String>,
    /// Addresses at which the data path reaches ready pods that are not being ended.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<SocketAddr>,
    /// These pods as they are reached from within their pod network, sorted. Not sent to other services.
    #[serde(skip)]
    #[schema(ignore)]
    pub pods: Vec<PodEndpoint>,
}

/// A ready pod behind a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodEndpoint {
    pub address: SocketAddr,
    /// The name of a pod of a StatefulSet below a headless Service.
    pub hostname: Option<String>,
}

/// How a process of the data path carries out a route (feed `traffic`; the key is the route's id).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteReport {
    pub route: Uuid,
    /// Why clients cannot connect; none: they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    pub backends: Vec<BackendReport>,
}

/// The traffic of one copy through one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendReport {
    pub binding: Uuid,
    /// The weight with which the process chooses it.
    pub weight: u16,
    /// Number of its endpoints that the process knows.
    pub endpoints: usize,
    /// How many of them answered the process's own probe.
    pub answering: usize,
    /// Requests and connections that have not ended.
    pub under_way: u64,
    /// Requests and connections since the process began.
    pub requests: u64,
    /// How many of them the app answered with 5xx, or broke off.
    pub failures: u64,
}

/// A route as users see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteView {
    pub project: String,
    pub composite_app: String,
    pub version: String,
    pub group: String,
    pub name: String,
    pub protocol: RouteProtocol,
    /// `host:port`.
    pub address: String,
    pub app: String,
    /// `service:port`.
    pub target: String,
    /// The `HTTPRoute` that carries it instead of Drover's data path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayRef>,
    /// `serving`, `no endpoint` or `not served`.
    pub state: String,
    /// Why it does not serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub backends: Vec<RouteBackendView>,
}

/// A copy of a route's app and its traffic, of all processes of the data path together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteBackendView {
    pub binding: Uuid,
    pub cluster: MemberKey,
    pub weight: u16,
    /// Endpoints that answer every process of the data path.
    pub answering: usize,
    pub under_way: u64,
    pub requests: u64,
    pub failures: u64,
}

/// All routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteList {
    pub items: Vec<RouteView>,
}
