//! Stand-ins in a member: Services and EndpointSlices that lead to the copies of an app in other members ([`crate::names`]).
//!
//! A Service keeps its selector: without pods the controller of the member empties its own slices, and where a copy comes back it fills
//! them, so that nothing stale can be left. The slices of a stand-in exist while no pod of the app is ready here; those of a headless
//! Service also contain the pods elsewhere that have a name of their own, while a StatefulSet is on both sides.
//!
//! Invariant: a Service changes hands by a write that only relabels it. The copy that comes takes it over; the copy that goes waits until
//! the stand-in has it, and has its slices in place, before it deletes anything.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_api::traffic::{PodEndpoint, PortEndpoints};
use drover_members::{Member, Object, ObjectId, Sharers, labels};
use drover_scheduling::MemberKey;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Worker;
use super::binding_state::BindingState;
use super::endpoints::{MANAGED_BY, SERVICE};
use crate::app::Error;
use crate::names::stand_in_id;
use crate::store;

/// How long a copy that goes waits for its stand-in. A name that cannot be kept does not keep the room of an app.
const PATIENCE: Duration = Duration::from_secs(15);
/// What a slice may contain.
const ENDPOINTS: usize = 1_000;

/// Copies with their members.
pub(super) type Copies = Vec<(Uuid, MemberKey)>;

/// Whose a Service is, as a stand-in sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The stand-in's, or nobody's.
    Own,
    /// That of a copy of the same app that runs here.
    Copys,
    /// Another app's: callers here mean that one.
    Others,
}

impl Worker {
    /// Whether it is known where a stand-in leads to. After a start of the service it is not, so what is there stays.
    pub(super) async fn knows_endpoints(&self, bound: &BindingState) -> Result<bool, Error> {
        let (here, elsewhere) = self.copies(bound).await?;
        let (near, far) = (self.ports(&here), self.ports(&elsewhere));
        let near_is_known = here.is_empty() || !near.is_empty() || self.app.lists_endpoints(&self.key);
        Ok(near_is_known && (!far.is_empty() || elsewhere.iter().all(|(_, member)| self.app.lists_endpoints(member))))
    }

    /// The objects of a stand-in.
    pub(super) async fn names(&self, member: &Member, bound: &BindingState, bundle: Vec<Value>) -> Result<Vec<Value>, Error> {
        let (here, elsewhere) = self.copies(bound).await?;
        let (near, far) = (self.ports(&here), self.ports(&elsewhere));
        let mut objects = self.imports(member, bound, (&here, &elsewhere), &bundle).await?;
        for service in bundle.into_iter().filter(has_name) {
            let name = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let own = service["metadata"]["namespace"].as_str().filter(|own| !own.is_empty());
            let namespace = own.unwrap_or(&bound.row.desired.namespace).to_owned();
            let of_service = |port: &&PortEndpoints| port.service == name && port.namespace == namespace;
            let address = ObjectId { api_version: "v1".into(), kind: "Service".into(), namespace: namespace.clone(), name: name.clone() };
            let whose = self.whose(bound, &here, &address);
            let missing = match near.iter().any(|port| of_service(&port)) {
                false => far.iter().filter(of_service).cloned().collect(),
                true if service["spec"]["clusterIP"] == "None" => {
                    unnamed_here(near.iter().filter(of_service), far.iter().filter(of_service))
                }
                true => Vec::new(),
            };
            if whose != Whose::Others {
                let marks = json!({SERVICE: name, MANAGED_BY: labels::FIELD_MANAGER});
                objects.extend(slices(&namespace, &format!("{name}-elsewhere"), &marks, missing.iter()));
            }
            if whose == Whose::Own {
                objects.push(inside(service));
            }
        }
        Ok(objects)
    }

    /// The copies of a stand-in's app that are to be present: here, and in other members.
    pub(super) async fn copies(&self, bound: &BindingState) -> Result<(Copies, Copies), Error> {
        let desired = &bound.row.desired;
        let copies = store::names::copies(&self.app.store, desired.dig.id, &desired.app).await?;
        Ok(copies.into_iter().partition(|(_, member)| *member == self.key))
    }

    /// The ports with ready endpoints of these copies.
    fn ports(&self, copies: &Copies) -> Vec<PortEndpoints> {
        let published = copies.iter().filter_map(|(id, _)| self.app.endpoints.get(&id.to_string()));
        published.flat_map(|copy| copy.ports.clone()).filter(|port| !port.pods.is_empty()).collect()
    }

    pub(super) fn whose(&self, bound: &BindingState, here: &Copies, service: &ObjectId) -> Whose {
        let Some(seen) = self.view.object(service) else {
            return if here.is_empty() { Whose::Own } else { Whose::Copys };
        };
        let of_app =
            |other: &BindingState| (other.row.desired.dig.id, &other.row.desired.app) == (bound.row.desired.dig.id, &bound.row.desired.app);
        match self.bindings.get(&seen.binding) {
            Some(_) if here.iter().any(|(copy, _)| *copy == seen.binding) => Whose::Copys,
            Some(other) if !of_app(other) => Whose::Others,
            _ => Whose::Own,
        }
    }

    /// Who may want an object that a binding has parted with: those who contain it, and stand-ins, if it is a Service or an import of one.
    pub(super) fn heirs(&self, object: &ObjectId) -> Vec<Uuid> {
        let is_name = object.api_version == "v1" && object.kind == "Service" || object.kind == "ServiceImport";
        let stand_ins = self.bindings.values().filter(|bound| is_name && bound.row.stand_in).map(|bound| bound.id());
        self.view.sharers(object).iter().copied().chain(stand_ins).collect()
    }

    /// With the Services that a copy brings and that only a stand-in has here: the copy takes them over.
    pub(super) fn with_names(&self, id: Uuid, due: &[Object], mut shared: Sharers) -> Sharers {
        let is_stand_in = |binding: &Uuid| self.bindings.get(binding).is_some_and(|bound| bound.row.stand_in);
        if !is_stand_in(&id) {
            let names = due.iter().filter(|object| self.view.object(&object.id).is_some_and(|seen| is_stand_in(&seen.binding)));
            shared.extend(names.map(|object| (Arc::clone(&object.id), Vec::new())));
        }
        shared
    }

    /// Whether a copy that goes has to wait until its stand-in keeps the names of its Services.
    pub(super) async fn waits_for_names(&mut self, id: Uuid) -> Result<bool, Error> {
        let desired = &self.bindings[&id].row.desired;
        let stand_in = stand_in_id(desired.dig.id, &desired.app, &self.key);
        if !desired.names || !self.refresh(stand_in).await? {
            return Ok(false);
        }
        let kept = &self.bindings[&stand_in];
        if !kept.present() || kept.failure.is_some() {
            return Ok(false);
        }
        let is_service = |object: &&ObjectId| object.api_version == "v1" && object.kind == "Service";
        let own: Vec<&ObjectId> = self.bindings[&id].inventory.keys().map(AsRef::as_ref).filter(is_service).collect();
        let is_own = |object: &&&ObjectId| self.view.object(object).is_some_and(|seen| seen.binding == id && !seen.deleting);
        if own.iter().filter(is_own).count() == 0 && kept.wanted.is_some() && kept.drifted(&self.view).is_empty() {
            return Ok(false);
        }
        let bound = self.bound(id);
        let since = *bound.names_since.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE {
            tracing::warn!(cluster.id = %self.key, binding.id = %id, "the names of its Services could not be kept in time");
            return Ok(false);
        }
        self.schedule(stand_in, Duration::ZERO);
        Ok(true)
    }
}

/// Whether an object of a bundle is a Service that callers find by its name, and that selects pods.
pub(super) fn has_name(object: &Value) -> bool {
    let spec = &object["spec"];
    object["apiVersion"] == "v1"
        && object["kind"] == "Service"
        && spec["selector"].as_object().is_some_and(|selector| !selector.is_empty())
        && spec["type"] != "ExternalName"
        && object["metadata"]["annotations"][labels::HOOK].is_null()
}

/// The Service as callers inside the cluster need it: what leads to it from outside is only for a copy.
fn inside(mut service: Value) -> Value {
    if let Some(spec) = service["spec"].as_object_mut() {
        spec.retain(|field, _| {
            !field.starts_with("loadBalancer")
                && !matches!(
                    field.as_str(),
                    "type" | "externalIPs" | "externalTrafficPolicy" | "healthCheckNodePort" | "allocateLoadBalancerNodePorts"
                )
        });
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
    service
}

/// The pods elsewhere that have a name of their own which no pod here has: while a StatefulSet moves, some of its pods are here.
fn unnamed_here<'a>(near: impl Iterator<Item = &'a PortEndpoints>, far: impl Iterator<Item = &'a PortEndpoints>) -> Vec<PortEndpoints> {
    let here: BTreeSet<&str> = near.flat_map(|port| &port.pods).filter_map(|pod| pod.hostname.as_deref()).collect();
    let is_missing = |pod: &PodEndpoint| pod.hostname.as_deref().is_some_and(|name| !here.contains(name));
    far.map(|port| PortEndpoints { pods: port.pods.iter().filter(|pod| is_missing(pod)).cloned().collect(), ..port.clone() }).collect()
}

/// Name and number of a port, whether its addresses are of IPv4, and the protocol above it.
type SliceKey<'a> = (&'a str, u16, bool, Option<&'a str>);

/// The slices with these endpoints, whose names begin with this one: one per port, number and family of addresses.
pub(super) fn slices<'a>(namespace: &str, begin: &str, marks: &Value, ports: impl Iterator<Item = &'a PortEndpoints>) -> Vec<Value> {
    let mut found: BTreeMap<SliceKey<'_>, BTreeSet<(IpAddr, Option<&str>)>> = BTreeMap::new();
    for port in ports {
        for PodEndpoint { address, hostname } in &port.pods {
            let key = (port.port.as_str(), address.port(), address.is_ipv4(), port.app_protocol.as_deref());
            found.entry(key).or_default().insert((address.ip(), hostname.as_deref()));
        }
    }
    let slice = |((name, number, is_v4, protocol), pods): (SliceKey<'_>, BTreeSet<(IpAddr, Option<&str>)>)| {
        let family = if is_v4 { "IPv4" } else { "IPv6" };
        let mut port = json!({"name": name, "port": number, "protocol": "TCP"});
        if let Some(protocol) = protocol {
            port["appProtocol"] = json!(protocol);
        }
        let shown = if name.is_empty() { String::new() } else { format!("{name}-") };
        let endpoint = |(ip, hostname): &(IpAddr, Option<&str>)| {
            let mut endpoint = json!({"addresses": [ip], "conditions": {"ready": true}});
            if let Some(hostname) = hostname {
                endpoint["hostname"] = json!(hostname);
            }
            endpoint
        };
        let endpoints: Vec<Value> = pods.iter().take(ENDPOINTS).map(endpoint).collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{begin}-{shown}{number}-{}", family.to_lowercase()),
                "namespace": namespace,
                "labels": marks,
            },
            "addressType": family,
            "ports": [port],
            "endpoints": endpoints,
        })
    };
    found.into_iter().map(slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_made_per_port_and_family() {
        let port = |name: &str, addresses: &[&str]| PortEndpoints {
            namespace: "default".into(),
            service: "web".into(),
            port: name.into(),
            app_protocol: None,
            pods: addresses.iter().map(|address| PodEndpoint { address: address.parse().unwrap(), hostname: None }).collect(),
            ..PortEndpoints::default()
        };
        let ports = [port("", &["10.0.0.2:80", "10.0.0.1:80", "[fd00::1]:80"]), port("grpc", &["10.0.0.1:90"])];
        let made = slices("default", "web-elsewhere", &json!({}), ports.iter());
        let shown: Vec<(&str, usize)> =
            made.iter().map(|slice| (slice["metadata"]["name"].as_str().unwrap(), slice["endpoints"].as_array().unwrap().len())).collect();
        assert_eq!(shown, [("web-elsewhere-80-ipv6", 1), ("web-elsewhere-80-ipv4", 2), ("web-elsewhere-grpc-90-ipv4", 1)]);
        assert_eq!(made[1]["endpoints"][0]["addresses"], json!(["10.0.0.1"]));
    }

    #[test]
    fn only_what_callers_inside_need_is_kept() {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"type": "LoadBalancer",
            "loadBalancerClass": "x", "selector": {"app": "web"}, "ports": [{"port": 80, "nodePort": 30080}]}});
        assert!(has_name(&service));
        assert_eq!(inside(service)["spec"], json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}));
        let outside = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"type": "ExternalName", "externalName": "x"}});
        assert!(!has_name(&outside));
    }
}
