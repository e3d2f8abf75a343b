//! Where the data path finds the pods behind a port of a Service. Pure.
//!
//! By the pod network these are the addresses of the pods. Otherwise the member leads requests from a port of its nodes, or from a load
//! balancer, to the pods; then addresses are given only while a pod is ready, so that a copy without pods gets no requests.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use drover_scheduling::Reachability;
use k8s_openapi::api::core::v1::{Node, Service};

/// A pod that is ready and not being ended.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadyPod {
    pub address: IpAddr,
    pub node: Option<String>,
    /// Its name below a headless Service.
    pub hostname: Option<String>,
}

/// The ways into the member that a Service has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenService {
    /// By name: the port of the Service, and the port of the nodes if it has one.
    ports: HashMap<String, (u16, Option<u16>)>,
    /// Addresses and host names of its load balancers.
    balancers: Vec<String>,
}

/// The addresses at which a node is reached: the external ones if it has any.
pub fn node_addresses(node: &Node) -> Vec<IpAddr> {
    let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let of = |kind: &str| -> Vec<IpAddr> {
        all.clone().filter(|address| address.type_ == kind).filter_map(|address| address.address.parse().ok()).collect()
    };
    let external = of("ExternalIP");
    if external.is_empty() { of("InternalIP") } else { external }
}

impl OpenService {
    pub fn of(service: &Service) -> Self {
        let number = |port: i32| u16::try_from(port).ok();
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let ports =
            ports.filter_map(|port| Some((port.name.clone().unwrap_or_default(), (number(port.port)?, port.node_port.and_then(number)))));
        let status = service.status.iter().filter_map(|status| status.load_balancer.as_ref());
        let balancers = status.flat_map(|status| status.ingress.iter().flatten());
        Self { ports: ports.collect(), balancers: balancers.filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone())).collect() }
    }

    /// The host names of its load balancers, which must be resolved.
    pub fn host_names(&self) -> impl Iterator<Item = &str> {
        self.balancers.iter().map(String::as_str).filter(|balancer| balancer.parse::<IpAddr>().is_err())
    }
}

/// What is known of a member besides its pods.
pub struct Outside<'a> {
    pub service: Option<&'a OpenService>,
    /// Addresses of a node by its name.
    pub nodes: &'a dyn Fn(&str) -> Option<Vec<IpAddr>>,
    /// What host names of load balancers lead to.
    pub resolved: &'a HashMap<String, Vec<IpAddr>>,
}

impl Outside<'_> {
    /// Where the data path reaches the pods behind the port of this name. `number` is the port of the pods.
    pub fn addresses(&self, way: Reachability, ready: &[ReadyPod], port: &str, number: u16) -> BTreeSet<SocketAddr> {
        let at = |addresses: Vec<IpAddr>, port: u16| addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        match (way, self.service.and_then(|service| service.ports.get(port))) {
            (Reachability::PodNetwork, _) => at(ready.iter().map(|pod| pod.address).collect(), number),
            (Reachability::NodePort, Some((_, Some(node_port)))) => {
                // The nodes of the pods: they also answer if the Service leads to pods of the same node only.
                let nodes: BTreeSet<&str> = ready.iter().filter_map(|pod| pod.node.as_deref()).collect();
                let addresses = nodes.into_iter().filter_map(|node| (self.nodes)(node)).flatten();
                at(addresses.collect(), *node_port)
            }
            (Reachability::LoadBalancer, Some((port, _))) if !ready.is_empty() => {
                let balancers = self.service.iter().flat_map(|service| &service.balancers);
                let addresses = balancers.flat_map(|balancer| match balancer.parse() {
                    Ok(address) => vec![address],
                    Err(_) => self.resolved.get(balancer).cloned().unwrap_or_default(),
                });
                at(addresses.collect(), *port)
            }
            _ => BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ready(last: u8, node: &str) -> ReadyPod {
        ReadyPod { address: IpAddr::from([10, 0, 0, last]), node: Some(node.to_owned()), hostname: None }
    }

    fn found(way: Reachability, pods: &[ReadyPod]) -> Vec<String> {
        let service = json!({"spec": {"ports": [{"name": "http", "port": 80, "nodePort": 30080}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.example"}]}}});
        let service = OpenService::of(&serde_json::from_value(service).unwrap());
        let node = |external: &str| {
            json!({"status": {"addresses": [
            {"type": "InternalIP", "address": "10.9.0.1"}, {"type": external, "address": "198.51.100.7"}]}})
        };
        let addresses = |external: &str| node_addresses(&serde_json::from_value(node(external)).unwrap());
        let nodes = HashMap::from([("a".to_owned(), addresses("ExternalIP")), ("b".to_owned(), addresses("Hostname"))]);
        let names: Vec<&str> = service.host_names().collect();
        assert_eq!(names, ["lb.example"]);
        let resolved = HashMap::from([("lb.example".to_owned(), vec![IpAddr::from([192, 0, 2, 2])])]);
        let outside = Outside { service: Some(&service), nodes: &|name| nodes.get(name).cloned(), resolved: &resolved };
        outside.addresses(way, pods, "http", 8080).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn pods_are_found_by_the_way_of_their_member() {
        let pods = [ready(1, "a"), ready(2, "a"), ready(3, "b"), ready(4, "unknown")];
        assert_eq!(found(Reachability::PodNetwork, &pods[..2]), ["10.0.0.1:8080", "10.0.0.2:8080"]);
        assert_eq!(found(Reachability::NodePort, &pods), ["10.9.0.1:30080", "198.51.100.7:30080"]);
        assert_eq!(found(Reachability::LoadBalancer, &pods), ["192.0.2.1:80", "192.0.2.2:80"]);
        assert!(found(Reachability::None, &pods).is_empty());
    }

    #[test]
    fn copy_without_ready_pods_has_no_address() {
        for way in [Reachability::PodNetwork, Reachability::NodePort, Reachability::LoadBalancer] {
            assert!(found(way, &[]).is_empty(), "{way:?}");
        }
    }
}
