//! The EndpointSlice of an app's public Service, which says who is in its path. It is the only thing that agent and activators share.
//!
//! The app has two Services, both labelled `drover.io/policy: NAME`: the public one, without a selector (`drover.io/path: public`), which
//! clients use; and one that selects its pods (`drover.io/path: pods`), whose slices the cluster maintains. Kubernetes copies a Service's labels to
//! its slices, so an activator only watches slices with the label `drover.io/path`. The agent is the only writer of the public slice.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::Key;

/// Label: the name of the ScalingPolicy.
pub const POLICY: &str = "drover.io/policy";
/// Label: [`PUBLIC`], [`PODS`] or [`ACTIVATORS_OF_ALL`].
pub const PATH: &str = "drover.io/path";
/// Value of [`PATH`]: the Service that clients use.
pub const PUBLIC: &str = "public";
/// Value of [`PATH`]: the Service that selects the pods.
pub const PODS: &str = "pods";
/// Value of [`PATH`]: the Service that selects the activators.
pub const ACTIVATORS_OF_ALL: &str = "activators";
/// Name of the port of the pods' Service at which sidecars serve requests.
pub const SERVE_PORT: &str = "queue";
/// Name of the admin port of sidecars and activators.
pub const ADMIN_PORT: &str = "queue-admin";
/// Annotation: the port at which activators serve this app.
pub const ACTIVATOR_PORT: &str = "drover.io/activator-port";
/// Annotation: the activators of this app, in the order in which they share its pods.
pub const ACTIVATORS: &str = "drover.io/activators";
/// Annotation: concurrent requests that a pod takes; 0: unlimited.
pub const CONTAINER_CONCURRENCY: &str = "drover.io/container-concurrency";
/// Annotation: `activator` or `pods`.
pub const THROUGH: &str = "drover.io/through";
/// Field manager, and the value of the label that says who manages the slice.
pub const MANAGER: &str = "autoscaler.drover.io";
/// Label of a slice: its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of a slice: who writes it.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Maximum number of endpoints in a slice.
const MOST: usize = 1_000;

/// Where clients are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Through {
    /// To the activators, which send requests on to the pods.
    #[default]
    Activator,
    /// To the pods.
    Pods,
}

impl Through {
    /// The word in the annotation.
    pub fn word(self) -> &'static str {
        match self {
            Self::Activator => "activator",
            Self::Pods => "pods",
        }
    }
}

/// What a public slice says besides its endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicPath {
    /// Where clients are sent.
    pub through: Through,
    /// The port at which activators serve this app.
    pub activator_port: u16,
    /// The activators, in the order in which they share the app's pods.
    pub activators: Vec<IpAddr>,
    /// Concurrent requests that a pod takes; 0: unlimited.
    pub container_concurrency: usize,
}

/// The public Service, as far as its slice depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublicService {
    pub name: String,
    /// Name of its port; none if it has a single unnamed one.
    pub port_name: Option<String>,
    /// Its labels, which its slice has too, as Kubernetes does it: Drover's data path finds the slices of an app by them.
    pub labels: BTreeMap<String, String>,
    /// Owner of the slice, so that the slice is deleted with it.
    pub owner: Option<OwnerReference>,
}

/// The slice that the agent writes. If there is no activator it lists the pods, because unprotected pods are better than no endpoint.
pub fn public_slice(key: &Key, service: &PublicService, path: &PublicPath, pods: &[&EndpointSlice]) -> EndpointSlice {
    let by_pods = path.through == Through::Pods || path.activators.is_empty();
    let serving = pods.iter().filter_map(|slice| Some((port_of(slice, SERVE_PORT)?, *slice)));
    let port = if by_pods { serving.clone().next().map_or(0, |(port, _)| port) } else { path.activator_port };
    let endpoints: Vec<Endpoint> = if by_pods {
        // A slice has one set of ports: pods that serve at another port are reached through an activator only.
        serving.filter(|(other, _)| *other == port).flat_map(|(_, slice)| slice.endpoints.iter().cloned()).take(MOST).collect()
    } else {
        path.activators.iter().take(MOST).map(|address| endpoint(*address)).collect()
    };
    let v6 = endpoints.first().and_then(|endpoint| endpoint.addresses.first()).is_some_and(|address| address.contains(':'));
    let list = path.activators.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let text = |pairs: [(&str, String); 4]| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<BTreeMap<_, _>>();
    let mut labels = service.labels.clone();
    labels.extend(text([
        (SERVICE_NAME, service.name.clone()),
        (MANAGED_BY, MANAGER.to_owned()),
        (POLICY, key.policy.clone()),
        (PATH, PUBLIC.to_owned()),
    ]));
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(name(&service.name)),
            namespace: Some(key.namespace.clone()),
            labels: Some(labels),
            annotations: Some(text([
                (THROUGH, path.through.word().to_owned()),
                (ACTIVATOR_PORT, path.activator_port.to_string()),
                (ACTIVATORS, list),
                (CONTAINER_CONCURRENCY, path.container_concurrency.to_string()),
            ])),
            owner_references: service.owner.clone().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        address_type: if v6 { "IPv6" } else { "IPv4" }.to_owned(),
        ports: Some(vec![EndpointPort {
            name: service.port_name.clone(),
            port: Some(i32::from(port)).filter(|port| *port > 0),
            protocol: Some("TCP".to_owned()),
            ..EndpointPort::default()
        }]),
        endpoints,
    }
}

/// Whether clients use this Service, and the agent writes its slice.
pub fn is_public(service: &Service) -> bool {
    service.metadata.labels.as_ref().and_then(|labels| labels.get(PATH)).is_some_and(|path| path == PUBLIC)
}

/// Whether the agent has written this slice.
pub fn is_ours(slice: &EndpointSlice) -> bool {
    slice.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|by| by == MANAGER)
}

/// The name of the slice of a public Service.
pub fn name(service: &str) -> String {
    format!("{service}-drover")
}

/// Whether a slice of the API server is the same as the wanted one in all that the agent sets.
pub fn same(written: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    let notes = |slice: &EndpointSlice| {
        [THROUGH, ACTIVATOR_PORT, ACTIVATORS, CONTAINER_CONCURRENCY].map(|note| slice.metadata.annotations.as_ref()?.get(note).cloned())
    };
    let labelled = || {
        let has = |label, value| written.metadata.labels.as_ref().and_then(|labels| labels.get(label)) == Some(value);
        wanted.metadata.labels.iter().flatten().all(|(label, value)| has(label, value))
    };
    let ports = |slice: &EndpointSlice| -> Vec<_> {
        slice.ports.iter().flatten().map(|port| (port.name.clone().unwrap_or_default(), port.port)).collect()
    };
    let endpoints = |slice: &EndpointSlice| -> Vec<_> {
        let state = |endpoint: &Endpoint| endpoint.conditions.as_ref().map(|it| (it.ready, it.serving, it.terminating));
        slice.endpoints.iter().map(|endpoint| (endpoint.addresses.clone(), state(endpoint))).collect()
    };
    notes(written) == notes(wanted) && labelled() && ports(written) == ports(wanted) && endpoints(written) == endpoints(wanted)
}

fn endpoint(address: IpAddr) -> Endpoint {
    let yes = Some(true);
    let conditions = EndpointConditions { ready: yes, serving: yes, terminating: Some(false) };
    Endpoint { addresses: vec![address.to_string()], conditions: Some(conditions), ..Endpoint::default() }
}

/// The app that a slice belongs to, and whether it is the public slice.
pub fn whose(slice: &EndpointSlice) -> Option<(Key, bool)> {
    let labels = slice.metadata.labels.as_ref()?;
    let policy = labels.get(POLICY)?.clone();
    let public = match labels.get(PATH)?.as_str() {
        PUBLIC => true,
        PODS => false,
        _ => return None,
    };
    Some((Key { namespace: slice.metadata.namespace.clone()?, policy }, public))
}

/// What a public slice says; none if it is not one of Drover's, or cannot be parsed.
pub fn read_public(slice: &EndpointSlice) -> Option<PublicPath> {
    let notes = slice.metadata.annotations.as_ref()?;
    let through = match notes.get(THROUGH)?.as_str() {
        "activator" => Through::Activator,
        "pods" => Through::Pods,
        _ => return None,
    };
    let activators = notes.get(ACTIVATORS)?.split(',').filter(|one| !one.is_empty()).map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(PublicPath {
        through,
        activator_port: notes.get(ACTIVATOR_PORT)?.parse().ok()?,
        activators,
        container_concurrency: notes.get(CONTAINER_CONCURRENCY)?.parse().ok()?,
    })
}

/// The number of a named port.
pub fn port_of(slice: &EndpointSlice, name: &str) -> Option<u16> {
    let port = slice.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name))?;
    u16::try_from(port.port?).ok()
}
