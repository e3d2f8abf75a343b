//! The table: what is known of routes and endpoints, and what requests find. No I/O.
//!
//! [`Table`] is what came from the feeds; it is also what is stored on disk. [`Compiled`] is made of it whenever it changes. Invariant:
//! counts and the state of endpoints outlive a change of the table, as long as the route has the copy or the copy the address.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use drover_api::traffic::{CopyEndpoints, RouteProtocol, RouteTable};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::route::{Backend, Counts, Endpoint, Route};

/// `appProtocol` of ports that speak HTTP/2 without TLS.
const H2C: &str = "kubernetes.io/h2c";

/// What is known of routes and of the endpoints of copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub routes: BTreeMap<Uuid, RouteTable>,
    pub endpoints: BTreeMap<Uuid, CopyEndpoints>,
}

/// What requests find, by port.
#[derive(Debug, Default)]
pub struct Compiled {
    pub ports: BTreeMap<u16, Arc<Port>>,
    /// Routes that cannot be served because of another one, with the reason.
    pub refused: BTreeMap<Uuid, (Arc<Route>, String)>,
    counts: HashMap<(Uuid, Uuid), Arc<Counts>>,
    endpoints: HashMap<(Uuid, Uuid, SocketAddr), Arc<Endpoint>>,
}

/// The routes of one port.
#[derive(Debug)]
pub struct Port {
    pub protocol: RouteProtocol,
    hosts: HashMap<String, Arc<Route>>,
    /// For every name that no other route has.
    default: Option<Arc<Route>>,
}

impl Port {
    /// The route of a host name, as requests have it: exact, then `*.` for its first label, then the route without a host.
    pub fn route(&self, host: &str) -> Option<&Arc<Route>> {
        let host = host_name(host);
        let wild = || host.split_once('.').and_then(|(_, rest)| self.hosts.get(&format!("*.{rest}")));
        self.hosts.get(&host).or_else(wild).or(self.default.as_ref())
    }

    /// The route of a port without host names.
    pub fn only(&self) -> Option<&Arc<Route>> {
        self.default.as_ref()
    }

    /// All routes of the port.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.hosts.values().chain(&self.default)
    }
}

/// A host name in lower case, without port and final dot.
fn host_name(host: &str) -> String {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    name.trim_end_matches('.').to_ascii_lowercase()
}

impl Table {
    /// What requests find; counts and states of endpoints are those of `before`.
    pub fn compile(&self, before: &Compiled) -> Compiled {
        let mut new = Compiled::default();
        for table in self.routes.values() {
            let route = Arc::new(self.route(table, before, &mut new));
            if let Err(reason) = place(&mut new, &route) {
                new.refused.insert(route.id, (route, reason));
            }
        }
        new
    }

    /// The table without endpoints of copies that no route has.
    pub fn used(&self) -> Self {
        let mut used = self.clone();
        used.endpoints
            .retain(|binding, _| self.routes.values().flat_map(|route| &route.backends).any(|backend| backend.binding == *binding));
        used
    }

    fn route(&self, table: &RouteTable, before: &Compiled, new: &mut Compiled) -> Route {
        let mut backends = Vec::with_capacity(table.backends.len());
        for backend in &table.backends {
            let key = (table.id, backend.binding);
            let counts = before.counts.get(&key).cloned().unwrap_or_default();
            new.counts.insert(key, counts.clone());
            let (mut h2c, mut endpoints) = (false, Vec::new());
            let copy = self.endpoints.get(&backend.binding).filter(|copy| copy.member == backend.member);
            let ports = copy.into_iter().flat_map(|copy| &copy.ports);
            for port in ports.filter(|port| port.service == table.service && port.port == table.service_port) {
                h2c |= port.app_protocol.as_deref() == Some(H2C);
                for address in &port.addresses {
                    let key = (table.id, backend.binding, *address);
                    let known = new.endpoints.get(&key).or_else(|| before.endpoints.get(&key)).cloned();
                    let endpoint = known.unwrap_or_else(|| Endpoint::new(*address));
                    if new.endpoints.insert(key, endpoint.clone()).is_none() {
                        endpoints.push(endpoint);
                    }
                }
            }
            backends.push(Backend {
                binding: backend.binding,
                member: backend.member.clone(),
                weight: backend.weight,
                h2c,
                endpoints,
                counts,
            });
        }
        Route {
            id: table.id,
            name: table.name.clone(),
            protocol: table.protocol,
            host: table.host.clone(),
            port: table.port,
            probe: table.probe.clone(),
            hold_seconds: table.hold_seconds,
            backends,
        }
    }
}

/// Gives a route its place at its port.
fn place(new: &mut Compiled, route: &Arc<Route>) -> Result<(), String> {
    let port =
        new.ports.entry(route.port).or_insert_with(|| Arc::new(Port { protocol: route.protocol, hosts: HashMap::new(), default: None }));
    // Nobody else has it yet.
    let Some(port) = Arc::get_mut(port) else { return Err("the table is in use".to_owned()) };
    if port.protocol != route.protocol {
        return Err(format!("port {} is used for {} by {}", route.port, port.protocol.as_str(), first(port)));
    }
    let taken = match &route.host {
        Some(host) => port.hosts.get(&host_name(host)),
        None => port.default.as_ref(),
    };
    if let Some(other) = taken {
        return Err(format!("{} has this address", other.name));
    }
    match &route.host {
        Some(host) if route.protocol != RouteProtocol::Tcp => {
            port.hosts.insert(host_name(host), route.clone());
        }
        _ if port.default.is_some() => return Err(format!("{} has this port", first(port))),
        _ => port.default = Some(route.clone()),
    }
    Ok(())
}

fn first(port: &Port) -> String {
    port.routes().next().map(|route| route.name.clone()).unwrap_or_default()
}

impl Compiled {
    /// All routes that are served.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.ports.values().flat_map(|port| port.routes())
    }
}

#[cfg(test)]
mod tests {
    use drover_api::scheduling::MemberKey;
    use drover_api::traffic::{PortEndpoints, RouteBackend};

    use super::*;

    fn route(host: Option<&str>, port: u16, protocol: RouteProtocol, binding: Uuid) -> RouteTable {
        let member = MemberKey::new("p", "m");
        RouteTable {
            id: Uuid::new_v4(),
            name: format!("p/a/{}", host.unwrap_or("any")),
            protocol,
            host: host.map(str::to_owned),
            port,
            service: "web".into(),
            service_port: "http".into(),
            probe: None,
            hold_seconds: 0,
            gateway: None,
            backends: vec![RouteBackend { binding, member, weight: 100 }],
        }
    }

    fn table(routes: impl IntoIterator<Item = RouteTable>) -> Table {
        Table { routes: routes.into_iter().map(|route| (route.id, route)).collect(), endpoints: BTreeMap::new() }
    }

    #[test]
    fn host_names_are_found_exactly_then_by_wildcard_then_by_default() {
        let some = Uuid::new_v4();
        let hosts = [Some("shop.example"), Some("*.shop.example"), None];
        let compiled = table(hosts.map(|host| route(host, 80, RouteProtocol::Http, some))).compile(&Compiled::default());
        let port = &compiled.ports[&80];
        let found = |host: &str| port.route(host).map(|route| route.host.clone().unwrap_or_default());
        assert_eq!(found("Shop.Example:80").as_deref(), Some("shop.example"));
        assert_eq!(found("shop.example.").as_deref(), Some("shop.example"));
        assert_eq!(found("a.shop.example").as_deref(), Some("*.shop.example"));
        assert_eq!(found("other.example:8080").as_deref(), Some(""));
        assert_eq!(found("[::1]:80").as_deref(), Some(""));
    }

    #[test]
    fn second_route_of_an_address_is_refused_with_the_first_ones_name() {
        let some = Uuid::new_v4();
        let same = table([route(Some("a.b"), 80, RouteProtocol::Http, some), route(Some("A.b"), 80, RouteProtocol::Http, some)]);
        let compiled = same.compile(&Compiled::default());
        assert_eq!((compiled.routes().count(), compiled.refused.len()), (1, 1));
        let mixed = table([route(None, 80, RouteProtocol::Http, some), route(None, 80, RouteProtocol::Tcp, some)]);
        assert_eq!(mixed.compile(&Compiled::default()).refused.len(), 1);
    }

    #[test]
    fn counts_and_endpoints_outlive_a_change_of_weights() {
        let binding = Uuid::new_v4();
        let mut table = table([route(None, 80, RouteProtocol::Http, binding)]);
        let address = SocketAddr::from(([10, 0, 0, 1], 80));
        let port = PortEndpoints {
            namespace: "default".into(),
            service: "web".into(),
            port: "http".into(),
            app_protocol: Some(H2C.into()),
            addresses: vec![address, address],
            pods: Vec::new(),
        };
        let other = PortEndpoints { port: "metrics".into(), ..port.clone() };
        let copy = CopyEndpoints { binding, member: MemberKey::new("p", "m"), ports: vec![port, other] };
        table.endpoints.insert(binding, copy);
        let before = table.compile(&Compiled::default());
        let taken = before.routes().next().and_then(|route| route.choose(&[], &mut |_| 0)).expect("an endpoint");
        assert!(taken.h2c);
        let id = *table.routes.keys().next().expect("a route");
        table.routes.get_mut(&id).expect("the route").backends[0].weight = 7;
        let after = table.compile(&before);
        let report = after.routes().next().expect("a route").backends[0].report();
        assert_eq!((report.weight, report.endpoints, report.under_way), (7, 1, 1));
        drop(taken);
        assert_eq!(after.routes().next().expect("a route").backends[0].report().under_way, 0);
    }
}
