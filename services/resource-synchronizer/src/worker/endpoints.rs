//! Watches the EndpointSlices of a member and publishes where the data path reaches the pods of each copy.
//!
//! Slices carry the labels of their Service, so those of this installation are known by the label of the hub, and their copy by the label
//! of the binding. Only members in which Drover has applied a Service are watched. Where the data path uses ports of nodes, their Services
//! and nodes are watched too; where it uses load balancers, their Services. While a member does not answer, what was published stays: its
//! pods may well be there. An address on this machine or its link is left out unless clusters may be there, because a member
//! must not lead users' requests into Drover's own services.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use drover_api::bindings::BindingStatus;
use drover_api::traffic::{CopyEndpoints, PodEndpoint, PortEndpoints};
use drover_members::{Member, Reach, labels};
use drover_scheduling::{MemberKey, Reachability};
use drover_service::FeedHub;
use futures::stream::{self, BoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::watch::Watch;
use super::way_in::{OpenService, Outside, ReadyPod, node_addresses};

/// Label of a slice: the name of its Service.
pub(super) const SERVICE: &str = "kubernetes.io/service-name";
/// Label of a slice: who writes it.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Pause before host names of load balancers are resolved again.
const RESOLVE: Duration = Duration::from_secs(30);
/// Longest time that a name server may take.
const RESOLVED_WITHIN: Duration = Duration::from_secs(5);
/// Names that are asked for at the same time.
const NAMES_AT_ONCE: usize = 32;

/// Namespace and name.
type Key = (String, String);

#[derive(Clone, Debug, PartialEq)]
struct Slice {
    binding: Uuid,
    service: Key,
    ready: Vec<ReadyPod>,
    ports: Vec<SlicePort>,
}

#[derive(Clone, Debug, PartialEq)]
struct SlicePort {
    /// Empty for the only port of a Service.
    name: String,
    number: u16,
    app_protocol: Option<String>,
}

/// What a watch has listed.
struct Listed<T> {
    known: HashMap<Key, T>,
    /// What has come of a list that is not complete.
    coming: HashMap<Key, T>,
    /// A list was complete once.
    complete: bool,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), coming: HashMap::new(), complete: false }
    }
}

impl<T: Clone + PartialEq> Listed<T> {
    /// Takes in an event; returns the values that it concerns, before and after.
    fn take<K: Resource<DynamicType = ()>>(&mut self, event: watcher::Event<K>, read: impl Fn(&K) -> Option<T>) -> Vec<(Key, T)> {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            watcher::Event::Init => self.coming.clear(),
            watcher::Event::InitApply(object) => drop(read(&object).map(|value| self.coming.insert(key(&object), value))),
            watcher::Event::InitDone => {
                self.complete = true;
                let before = std::mem::replace(&mut self.known, std::mem::take(&mut self.coming));
                return before.into_iter().chain(self.known.clone()).collect();
            }
            watcher::Event::Apply(object) => {
                let (key, now) = (key(&object), read(&object));
                if self.known.get(&key) == now.as_ref() {
                    return Vec::new();
                }
                let before = match now.clone() {
                    Some(value) => self.known.insert(key.clone(), value),
                    None => self.known.remove(&key),
                };
                return before.into_iter().chain(now).map(|value| (key.clone(), value)).collect();
            }
            watcher::Event::Delete(object) => {
                let key = key(&object);
                return self.known.remove(&key).map(|value| (key, value)).into_iter().collect();
            }
        }
        Vec::new()
    }
}

/// An event of one of the watches.
enum Event {
    Slice(Box<watcher::Event<EndpointSlice>>),
    Service(Box<watcher::Event<Service>>),
    Node(Box<watcher::Event<Node>>),
    /// A watch failed and goes on.
    Broken(watcher::Error),
    /// Host names may lead elsewhere.
    Resolve,
}

/// Where the endpoints of a member are published.
#[derive(Clone)]
pub struct Publisher {
    pub key: MemberKey,
    pub hub: FeedHub<CopyEndpoints>,
    /// What is known of each copy, with the member on which it runs.
    pub statuses: FeedHub<BindingStatus>,
    /// Which addresses are permitted.
    pub reach: Reach,
    /// How the data path reaches the member's pods.
    pub way: Reachability,
    /// Is told when the list is complete.
    pub listed: Arc<dyn Fn() + Send + Sync>,
}

/// What is known of a member.
#[derive(Default)]
struct Known {
    slices: Listed<Slice>,
    services: Listed<OpenService>,
    nodes: Listed<Vec<IpAddr>>,
    /// What host names of load balancers lead to.
    resolved: HashMap<String, Vec<IpAddr>>,
}

/// Watches until the result is dropped.
pub fn watch(member: &Member, config: watcher::Config, publisher: Publisher) -> Watch {
    let mut events = events(member, config, publisher.way);
    let watch = async move {
        let (mut known, mut complete) = (Known::default(), false);
        while let Some(event) = events.next().await {
            let changed = known.take(event, &publisher.key).await;
            if complete {
                publisher.publish(&known, changed);
            } else if known.is_complete(publisher.way) {
                complete = true;
                // Also what an earlier session with the member has published.
                let published = publisher.hub.snapshot().into_values().filter(|copy| copy.member == publisher.key);
                publisher.publish(&known, published.map(|copy| copy.binding).chain(known.bindings()).collect());
                (publisher.listed)();
            }
        }
    };
    AbortOnDropHandle::new(tokio::spawn(async move {
        if AssertUnwindSafe(watch).catch_unwind().await.is_err() {
            tracing::error!("the watch of endpoints panicked; it is started again with the next session of the member");
        }
    }))
}

/// The watches that the way to the member needs.
fn events(member: &Member, config: watcher::Config, way: Reachability) -> SelectAll<BoxStream<'static, Event>> {
    let mut events: SelectAll<BoxStream<'static, Event>> = SelectAll::new();
    events.push(watched(member, config.clone(), Event::Slice));
    if needs_services(way) {
        events.push(watched(member, config, Event::Service));
    }
    if needs_nodes(way) {
        events.push(watched(member, watcher::Config::default(), Event::Node));
    }
    if way == Reachability::LoadBalancer {
        let ticks = futures::stream::unfold((), async |()| {
            tokio::time::sleep(RESOLVE).await;
            Some((Event::Resolve, ()))
        });
        events.push(ticks.boxed());
    }
    events
}

fn watched<K>(member: &Member, config: watcher::Config, event: fn(Box<watcher::Event<K>>) -> Event) -> BoxStream<'static, Event>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let objects = watcher(Api::<K>::all(member.client()), config).default_backoff();
    objects.map(move |seen| seen.map_or_else(Event::Broken, |seen| event(Box::new(seen)))).boxed()
}

fn needs_services(way: Reachability) -> bool {
    matches!(way, Reachability::NodePort | Reachability::LoadBalancer)
}

fn needs_nodes(way: Reachability) -> bool {
    way == Reachability::NodePort
}

impl Known {
    /// Takes in an event; returns the copies whose endpoints may have changed by it.
    async fn take(&mut self, event: Event, member: &MemberKey) -> BTreeSet<Uuid> {
        match event {
            Event::Slice(event) => self.slices.take(*event, slice).into_iter().map(|(_, slice)| slice.binding).collect(),
            Event::Service(event) => {
                let changed: BTreeSet<Key> =
                    self.services.take(*event, |service| Some(OpenService::of(service))).into_iter().map(|(key, _)| key).collect();
                if !changed.is_empty() {
                    self.resolve(false).await;
                }
                self.slices.known.values().filter(|slice| changed.contains(&slice.service)).map(|slice| slice.binding).collect()
            }
            Event::Node(event) => match self.nodes.take(*event, |node| Some(node_addresses(node))).is_empty() {
                true => BTreeSet::new(),
                false => self.bindings().collect(),
            },
            Event::Resolve => {
                self.resolve(true).await;
                self.bindings().collect()
            }
            Event::Broken(error) => {
                tracing::debug!(cluster.id = %member, %error, "the endpoints cannot be watched at the moment");
                BTreeSet::new()
            }
        }
    }

    fn is_complete(&self, way: Reachability) -> bool {
        self.slices.complete && (self.services.complete || !needs_services(way)) && (self.nodes.complete || !needs_nodes(way))
    }

    fn bindings(&self) -> impl Iterator<Item = Uuid> {
        self.slices.known.values().map(|slice| slice.binding)
    }

    /// Asks for the addresses of load balancers that have a host name; with `again` also of those that are known. A name that cannot be
    /// resolved keeps its addresses.
    async fn resolve(&mut self, again: bool) {
        let names: BTreeSet<String> = self.services.known.values().flat_map(OpenService::host_names).map(str::to_owned).collect();
        self.resolved.retain(|name, _| names.contains(name));
        let due: Vec<String> = names.into_iter().filter(|name| again || !self.resolved.contains_key(name)).collect();
        // Not one after the other: a name server that does not answer would delay what is seen of all slices.
        let asked = stream::iter(due).map(async |name| {
            let found = timeout(RESOLVED_WITHIN, tokio::net::lookup_host((name.as_str(), 0))).await.ok()?.ok()?;
            let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            Some((name, found))
        });
        let found: Vec<_> = asked.buffer_unordered(NAMES_AT_ONCE).collect().await;
        self.resolved.extend(found.into_iter().flatten());
    }
}

/// What counts of a slice; nothing of one that Drover itself wrote, for a name whose app runs elsewhere.
fn slice(slice: &EndpointSlice) -> Option<Slice> {
    let binding = labels::binding(&slice.metadata)?;
    let service = slice.labels().get(SERVICE)?;
    if slice.labels().get(MANAGED_BY).is_some_and(|by| by == labels::FIELD_MANAGER) {
        return None;
    }
    let ready = slice.endpoints.iter().filter(|endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        conditions.ready.unwrap_or(true) && !conditions.terminating.unwrap_or(false)
    });
    let ready = ready.filter_map(|endpoint| {
        Some(ReadyPod {
            address: endpoint.addresses.first()?.parse().ok()?,
            node: endpoint.node_name.clone(),
            hostname: endpoint.hostname.clone(),
        })
    });
    let ports = slice.ports.iter().flatten().filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    let ports = ports.filter_map(|port| {
        let number = u16::try_from(port.port?).ok()?;
        Some(SlicePort { name: port.name.clone().unwrap_or_default(), number, app_protocol: port.app_protocol.clone() })
    });
    let namespace = slice.namespace().unwrap_or_default();
    Some(Slice { binding, service: (namespace, service.clone()), ready: ready.collect(), ports: ports.collect() })
}

impl Publisher {
    /// Publishes the endpoints of these copies: of all their slices together.
    fn publish(&self, known: &Known, bindings: BTreeSet<Uuid>) {
        for binding in bindings {
            // Labels may name a copy of another member, for example on objects that were restored from its backup.
            if self.statuses.get(&binding.to_string()).is_some_and(|status| status.member != self.key) {
                continue;
            }
            let mut ports: BTreeMap<(&Key, &str), PortEndpoints> = BTreeMap::new();
            let slices = || known.slices.known.values().filter(|slice| slice.binding == binding);
            for slice in slices() {
                let outside = Outside {
                    service: known.services.known.get(&slice.service),
                    nodes: &|name| known.nodes.known.get(&(String::new(), name.to_owned())).cloned(),
                    resolved: &known.resolved,
                };
                for port in &slice.ports {
                    let all = ports.entry((&slice.service, &port.name)).or_insert_with(|| PortEndpoints {
                        namespace: slice.service.0.clone(),
                        service: slice.service.1.clone(),
                        port: port.name.clone(),
                        app_protocol: port.app_protocol.clone(),
                        ..PortEndpoints::default()
                    });
                    let addresses = outside.addresses(self.way, &slice.ready, &port.name, port.number);
                    all.addresses.extend(addresses.into_iter().filter(|address| self.reach.permits(address.ip())));
                    let pods = slice.ready.iter().filter(|pod| self.reach.permits(pod.address));
                    all.pods.extend(
                        pods.map(|pod| PodEndpoint { address: SocketAddr::new(pod.address, port.number), hostname: pod.hostname.clone() }),
                    );
                }
            }
            for port in ports.values_mut() {
                port.addresses.sort();
                port.addresses.dedup();
                port.pods.sort();
                port.pods.dedup();
            }
            let value = CopyEndpoints { binding, member: self.key.clone(), ports: ports.into_values().collect() };
            let gone = slices().next().is_none();
            self.hub.publish_if_changed(binding.to_string(), (!gone).then_some(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(name: &str, binding: Uuid, addresses: &[(&str, bool)]) -> EndpointSlice {
        let endpoints: Vec<_> =
            addresses.iter().map(|(ip, ready)| json!({"addresses": [ip], "conditions": {"ready": ready, "terminating": false}})).collect();
        let labels = json!({labels::BINDING: binding.to_string(), SERVICE: "web"});
        let value = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
            "metadata": {"name": name, "namespace": "default", "labels": labels}, "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]});
        serde_json::from_value(value).unwrap()
    }

    #[tokio::test]
    async fn endpoints_of_a_copy_are_the_ready_ones_of_all_its_slices() {
        let (key, way) = (MemberKey::new("p", "m"), Reachability::PodNetwork);
        let (hub, statuses) = (FeedHub::new(), FeedHub::new());
        let publisher = Publisher { key: key.clone(), hub, statuses, reach: Reach::Remote, way, listed: Arc::new(|| {}) };
        let (binding, mut known) = (Uuid::new_v4(), Known::default());
        for slice in [
            seen("web-1", binding, &[("10.0.0.1", true), ("10.0.0.2", false), ("127.0.0.1", true), ("169.254.169.254", true)]),
            seen("web-2", binding, &[("10.0.0.3", true), ("10.0.0.1", true)]),
            seen("other", Uuid::new_v4(), &[("10.0.0.9", true)]),
        ] {
            let changed = known.take(Event::Slice(Box::new(watcher::Event::Apply(slice))), &key).await;
            publisher.publish(&known, changed);
        }
        let published = publisher.hub.get(&binding.to_string()).unwrap();
        let addresses: Vec<String> = published.ports[0].addresses.iter().map(ToString::to_string).collect();
        assert_eq!((published.ports.len(), addresses), (1, vec!["10.0.0.1:8080".to_owned(), "10.0.0.3:8080".to_owned()]));
        for event in [watcher::Event::Init, watcher::Event::InitDone] {
            let changed = known.take(Event::Slice(Box::new(event)), &key).await;
            publisher.publish(&known, changed);
        }
        assert!(publisher.hub.get(&binding.to_string()).is_none(), "a new list without its slices");
    }

    #[tokio::test]
    async fn slice_with_the_label_of_a_copy_of_another_member_does_not_count() {
        let (key, way) = (MemberKey::new("p", "m"), Reachability::PodNetwork);
        let (hub, statuses) = (FeedHub::new(), FeedHub::new());
        let publisher = Publisher { key: key.clone(), hub, statuses, reach: Reach::Remote, way, listed: Arc::new(|| {}) };
        let mut known = Known::default();
        let (own, foreign) = (Uuid::new_v4(), Uuid::new_v4());
        for (binding, member) in [(own, key.clone()), (foreign, MemberKey::new("p", "other"))] {
            let status = json!({"id": binding, "member": member, "digest": "d", "fence": 1, "phase": "Ready"});
            publisher.statuses.publish_if_changed(binding.to_string(), Some(serde_json::from_value(status).unwrap()));
            let slice = seen(&binding.to_string(), binding, &[("10.0.0.1", true)]);
            let changed = known.take(Event::Slice(Box::new(watcher::Event::Apply(slice))), &key).await;
            publisher.publish(&known, changed);
        }
        assert!(publisher.hub.get(&own.to_string()).is_some());
        assert!(publisher.hub.get(&foreign.to_string()).is_none());
    }
}
