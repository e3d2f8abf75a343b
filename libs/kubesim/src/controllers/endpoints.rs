//! Keeps the EndpointSlice of each Service with a selector: one per Service, with the labels of the Service, as kube-controller-manager
//! mirrors them.

use serde_json::{Map, Value, json};

use crate::key::Key;
use crate::object::{self, list, map, number, text};
use crate::state::ClusterState;

const SLICES: &str = "endpointslices.discovery.k8s.io";

/// Queues the Services that a change of a pod concerns.
pub fn of_pod(state: &mut ClusterState, key: &Key, old: Option<&Value>, new: Option<&Value>) {
    let told = |pod: Option<&Value>| pod.map(|pod| (endpoint(pod, ""), pod["metadata"]["labels"].clone()));
    if &*key.resource != "pods" || told(old) == told(new) {
        return;
    }
    let services = "services".into();
    let concerned: Vec<Key> = state
        .store
        .list(&services, &key.namespace)
        .filter(|(_, service)| [old, new].into_iter().flatten().any(|pod| selects(service, pod)))
        .map(|(key, _)| key.clone())
        .collect();
    concerned.into_iter().for_each(|key| super::enqueue(state, key));
}

fn selects(service: &Value, pod: &Value) -> bool {
    let selector = map(service, "/spec/selector");
    selector.is_some_and(|wanted| !wanted.is_empty() && wanted.iter().all(|(key, value)| object::label(pod, key) == value.as_str()))
}

/// Writes the slice of a Service.
pub fn reconcile(state: &mut ClusterState, key: &Key, service: &Value) {
    let name = format!("{}-slice", key.name);
    let slice = Key::new(&SLICES.into(), &key.namespace, &name);
    if map(service, "/spec/selector").is_none_or(Map::is_empty) {
        return;
    }
    let pods: Vec<_> = state.store.list(&"pods".into(), &key.namespace).map(|(_, pod)| pod).filter(|pod| selects(service, pod)).collect();
    let endpoints: Vec<Value> = pods.iter().filter_map(|pod| endpoint(pod, &key.name)).collect();
    let ports: Vec<Value> = list(service, "/spec/ports").iter().filter_map(|port| port_of(port, pods.first().map(AsRef::as_ref))).collect();
    let mut labels = map(service, "/metadata/labels").cloned().unwrap_or_default();
    labels.insert("kubernetes.io/service-name".into(), json!(&*key.name));
    labels.insert("endpointslice.kubernetes.io/managed-by".into(), json!("endpointslice-controller.k8s.io"));
    let wanted = |object: &mut Value| {
        object["metadata"]["labels"] = labels.clone().into();
        object["addressType"] = json!("IPv4");
        object["endpoints"] = endpoints.clone().into();
        object["ports"] = ports.clone().into();
    };
    match state.store.get(&slice) {
        Some(known) => {
            let mut new = Value::clone(&known);
            wanted(&mut new);
            if new != *known {
                state.put(slice, new);
            }
        }
        None => {
            let mut new = json!({"metadata": {}});
            wanted(&mut new);
            // It exists only if somebody else made one of this name.
            let _ = state.create_owned(slice, new, service);
        }
    }
}

/// A pod as an endpoint of the Service of this name.
fn endpoint(pod: &Value, service: &str) -> Option<Value> {
    let ip = text(pod, "/status/podIP");
    if ip.is_empty() || object::pod_finished(pod) {
        return None;
    }
    let (serving, terminating) = (object::pod_ready(pod), object::deleting(pod));
    let mut endpoint = json!({
        "addresses": [ip],
        "conditions": {"ready": serving && !terminating, "serving": serving, "terminating": terminating},
        "nodeName": text(pod, "/spec/nodeName"),
        "targetRef": {"kind": "Pod", "namespace": object::namespace(pod), "name": object::name(pod), "uid": object::uid(pod)},
    });
    let hostname = text(pod, "/spec/hostname");
    if !hostname.is_empty() && text(pod, "/spec/subdomain") == service {
        endpoint["hostname"] = json!(hostname);
    }
    Some(endpoint)
}

/// A port of the slice: the number of the container's port, if the Service names that.
fn port_of(port: &Value, pod: Option<&Value>) -> Option<Value> {
    let named = |name: &str| {
        let containers = pod.into_iter().flat_map(|pod| list(pod, "/spec/containers"));
        containers.flat_map(|c| list(c, "/ports")).find(|port| text(port, "/name") == name).and_then(|port| number(port, "/containerPort"))
    };
    let number = match &port["targetPort"] {
        Value::String(name) => named(name)?,
        Value::Number(target) => target.as_i64()?,
        _ => number(port, "/port")?,
    };
    let mut out = json!({"name": text(port, "/name"), "port": number, "protocol": port["protocol"].as_str().unwrap_or("TCP")});
    if let Some(protocol) = port["appProtocol"].as_str() {
        out["appProtocol"] = json!(protocol);
    }
    Some(out)
}
