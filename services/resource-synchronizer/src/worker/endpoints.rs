//! Watches the EndpointSlices of a member and publishes where the data path reaches the pods of each copy.
//!
//! Slices carry the labels of their Service, so those of this installation are known by the label of the hub, and their copy by the label
//! of the binding. Only members in which Drover has applied a Service are watched. While a member does not answer, what was published
//! stays: its pods may well be there. An address on this machine or its link is left out unless clusters may be there, because a member
//! must not lead users' requests into Drover's own services.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use drover_api::traffic::{CopyEndpoints, PortEndpoints};
use drover_members::{Member, Reach, labels};
use drover_scheduling::MemberKey;
use drover_service::FeedHub;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::watch::Watch;

/// Label of a slice: the name of its Service.
pub(super) const SERVICE: &str = "kubernetes.io/service-name";
/// Label of a slice: who writes it.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// A slice by namespace and name.
type Slices = HashMap<(String, String), Slice>;

#[derive(Clone, Debug, PartialEq)]
struct Slice {
    binding: Uuid,
    ports: Vec<PortEndpoints>,
}

/// Where the endpoints of a member are published.
#[derive(Clone)]
pub struct Publisher {
    pub key: MemberKey,
    pub hub: FeedHub<CopyEndpoints>,
    pub reach: Reach,
    /// Is told when the list is complete.
    pub listed: Arc<dyn Fn() + Send + Sync>,
}

/// Watches until the result is dropped.
pub fn watch(member: &Member, config: watcher::Config, publisher: Publisher) -> Watch {
    let stream = watcher(Api::<EndpointSlice>::all(member.client()), config).default_backoff();
    let watch = async move {
        let (mut stream, mut known, mut listed) = (std::pin::pin!(stream), Slices::new(), Slices::new());
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(slice)) => drop(publisher.read(&slice).map(|(key, slice)| listed.insert(key, slice))),
                Ok(watcher::Event::InitDone) => {
                    // Also what an earlier session with the member has published.
                    let published = publisher.hub.snapshot().into_values().filter(|copy| copy.member == publisher.key);
                    let before: BTreeSet<Uuid> = published.map(|copy| copy.binding).collect();
                    known = std::mem::take(&mut listed);
                    let now = known.values().map(|slice| slice.binding);
                    publisher.publish(&known, before.into_iter().chain(now).collect());
                    (publisher.listed)();
                }
                Ok(watcher::Event::Apply(slice)) => {
                    let Some((key, slice)) = publisher.read(&slice) else { continue };
                    let binding = slice.binding;
                    known.insert(key, slice);
                    publisher.publish(&known, BTreeSet::from([binding]));
                }
                Ok(watcher::Event::Delete(slice)) => {
                    if let Some(gone) = known.remove(&key(&slice)) {
                        publisher.publish(&known, BTreeSet::from([gone.binding]));
                    }
                }
                Err(error) => tracing::debug!(cluster.id = %publisher.key, %error, "the endpoints cannot be watched at the moment"),
            }
        }
    };
    AbortOnDropHandle::new(tokio::spawn(async move {
        if AssertUnwindSafe(watch).catch_unwind().await.is_err() {
            tracing::error!("the watch of endpoints panicked; it is started again with the next session of the member");
        }
    }))
}

fn key(slice: &EndpointSlice) -> (String, String) {
    (slice.namespace().unwrap_or_default(), slice.name_any())
}

impl Publisher {
    fn read(&self, slice: &EndpointSlice) -> Option<((String, String), Slice)> {
        let binding = labels::binding(&slice.metadata)?;
        let service = slice.labels().get(SERVICE)?;
        // One of Drover itself, of a name whose app runs elsewhere.
        if slice.labels().get(MANAGED_BY).is_some_and(|by| by == labels::FIELD_MANAGER) {
            return None;
        }
        let ready: Vec<IpAddr> = slice
            .endpoints
            .iter()
            .filter(|endpoint| {
                let conditions = endpoint.conditions.clone().unwrap_or_default();
                conditions.ready.unwrap_or(true) && !conditions.terminating.unwrap_or(false)
            })
            .filter_map(|endpoint| endpoint.addresses.first()?.parse().ok())
            .filter(|address| self.reach.permits(*address))
            .collect();
        let ports = slice.ports.iter().flatten().filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
        let ports = ports.filter_map(|port| {
            let number = u16::try_from(port.port?).ok()?;
            Some(PortEndpoints {
                namespace: slice.namespace().unwrap_or_default(),
                service: service.clone(),
                port: port.name.clone().unwrap_or_default(),
                app_protocol: port.app_protocol.clone(),
                addresses: ready.iter().map(|address| SocketAddr::new(*address, number)).collect(),
            })
        });
        Some((key(slice), Slice { binding, ports: ports.collect() }))
    }

    /// Publishes the endpoints of these copies: of all their slices together.
    fn publish(&self, known: &Slices, bindings: BTreeSet<Uuid>) {
        for binding in bindings {
            let mut ports: BTreeMap<(String, String, String), PortEndpoints> = BTreeMap::new();
            for port in known.values().filter(|slice| slice.binding == binding).flat_map(|slice| &slice.ports) {
                let key = (port.namespace.clone(), port.service.clone(), port.port.clone());
                let all = ports.entry(key).or_insert_with(|| PortEndpoints { addresses: Vec::new(), ..port.clone() });
                all.addresses.extend(&port.addresses);
                all.addresses.sort();
                all.addresses.dedup();
            }
            let value = CopyEndpoints { binding, member: self.key.clone(), ports: ports.into_values().collect() };
            let gone = value.ports.is_empty() && !known.values().any(|slice| slice.binding == binding);
            self.hub.publish_if_changed(binding.to_string(), (!gone).then_some(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(name: &str, binding: Uuid, addresses: &[(&str, bool)]) -> EndpointSlice {
        let endpoints: Vec<_> =
            addresses.iter().map(|(ip, ready)| json!({"addresses": [ip], "conditions": {"ready": ready, "terminating": false}})).collect();
        let labels = json!({labels::BINDING: binding.to_string(), SERVICE: "web"});
        let value = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
            "metadata": {"name": name, "namespace": "default", "labels": labels}, "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn endpoints_of_a_copy_are_the_ready_ones_of_all_its_slices() {
        let publisher = Publisher { key: MemberKey::new("p", "m"), hub: FeedHub::new(), reach: Reach::Remote, listed: Arc::new(|| {}) };
        let binding = Uuid::new_v4();
        let known: Slices = [
            slice("web-1", binding, &[("10.0.0.1", true), ("10.0.0.2", false), ("127.0.0.1", true), ("169.254.169.254", true)]),
            slice("web-2", binding, &[("10.0.0.3", true), ("10.0.0.1", true)]),
            slice("other", Uuid::new_v4(), &[("10.0.0.9", true)]),
        ]
        .iter()
        .filter_map(|slice| publisher.read(slice))
        .collect();
        publisher.publish(&known, BTreeSet::from([binding]));
        let published = publisher.hub.get(&binding.to_string()).unwrap();
        let addresses: Vec<String> = published.ports[0].addresses.iter().map(ToString::to_string).collect();
        assert_eq!((published.ports.len(), addresses), (1, vec!["10.0.0.1:8080".to_owned(), "10.0.0.3:8080".to_owned()]));
        publisher.publish(&Slices::new(), BTreeSet::from([binding]));
        assert!(publisher.hub.get(&binding.to_string()).is_none());
    }
}
