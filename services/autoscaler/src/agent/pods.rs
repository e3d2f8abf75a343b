//! The cluster's pods from a watch, reduced to what policies need.
//!
//! Invariant: while the watch is broken, [`Pods::whole`] is false, and the pods are listed instead.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use drover_autoscaling::threshold::{self, ContainerUse, Phase, ReadyCondition};
use futures::StreamExt;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::{Selector, SelectorExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::Deserialize;

use crate::watch_backoff::WatchBackoff;

/// A pod.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "core::Pod")]
#[serde(from = "RawPod")]
pub struct Pod {
    /// Only name, namespace, labels and resource version.
    pub metadata: ObjectMeta,
    /// The form that policies observe, without metrics.
    pub seen: Arc<threshold::Pod>,
    /// Name of the first container: the application, unless a policy names another.
    pub first: String,
    /// IP address.
    pub address: Option<String>,
}

impl Pod {
    /// Whether it is ready and not being deleted.
    pub fn serves(&self) -> bool {
        !self.seen.deleting && self.seen.phase == Phase::Running && self.seen.ready.is_some_and(|ready| ready.status == Some(true))
    }
}

/// All pods, by namespace and name.
#[derive(Clone, Debug, Default)]
pub struct Pods(Arc<Mutex<PodView>>);

#[derive(Debug, Default)]
struct PodView {
    pods: HashMap<String, NamespacePods>,
    /// A new list that is being received.
    coming: HashMap<String, NamespacePods>,
    whole: bool,
    /// Number of changes so far.
    changes: u64,
}

#[derive(Debug, Default)]
struct NamespacePods {
    pods: HashMap<String, Arc<Pod>>,
    /// Number of the last change in this namespace.
    changed: u64,
}

/// The pods that a selector selected, valid until a pod of the namespace changes. It saves each policy from checking all pods of the namespace
/// at each observation.
#[derive(Clone, Debug)]
pub struct SelectedPods {
    changed: u64,
    selector: String,
    pods: Vec<Arc<Pod>>,
}

impl Pods {
    /// Whether the view is complete and the watch works.
    pub fn whole(&self) -> bool {
        self.view().whole
    }

    /// The pods of a namespace that match a selector (also given as text); `known` is the result of the last call.
    pub fn select(&self, namespace: &str, selector: &Selector, text: &str, known: &mut Option<SelectedPods>) -> Vec<Arc<Pod>> {
        let view = self.view();
        let Some(NamespacePods { pods, changed }) = view.pods.get(namespace) else { return Vec::new() };
        if let Some(known) = known.as_ref().filter(|known| known.changed == *changed && known.selector == text) {
            return known.pods.clone();
        }
        let labels = |pod: &Pod| pod.metadata.labels.as_ref().is_some_and(|labels| selector.matches(labels));
        let pods: Vec<_> = pods.values().filter(|pod| labels(pod)).cloned().collect();
        *known = Some(SelectedPods { changed: *changed, selector: text.to_owned(), pods: pods.clone() });
        pods
    }

    /// Number of pods in a namespace; none while the watch is broken.
    pub fn count(&self, namespace: &str) -> Option<usize> {
        let view = self.view();
        view.whole.then(|| view.pods.get(namespace).map_or(0, |namespace| namespace.pods.len()))
    }

    /// Follows the API server until the future is dropped.
    pub async fn follow(self, api: Api<Pod>) {
        let settings = watcher::Config::default();
        let mut events = watcher(api, settings).backoff(WatchBackoff::default()).boxed();
        while let Some(event) = events.next().await {
            let mut view = self.view();
            match event {
                Ok(event) => view.take(event),
                Err(error) => {
                    if view.whole {
                        tracing::warn!(%error, "pods cannot be watched; they are listed instead until the watch works again");
                    }
                    view.whole = false;
                }
            }
        }
    }

    fn view(&self) -> std::sync::MutexGuard<'_, PodView> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodView {
    fn take(&mut self, event: Event<Pod>) {
        self.changes += 1;
        match event {
            Event::Init => self.coming.clear(),
            Event::InitApply(pod) => put(&mut self.coming, pod, 0),
            Event::InitDone => {
                self.pods = std::mem::take(&mut self.coming);
                self.pods.values_mut().for_each(|namespace| namespace.changed = self.changes);
                self.whole = true;
            }
            Event::Apply(pod) => put(&mut self.pods, pod, self.changes),
            Event::Delete(pod) => {
                let (namespace, name) = key(&pod);
                if let Some(namespace) = self.pods.get_mut(&namespace) {
                    namespace.pods.remove(&name);
                    namespace.changed = self.changes;
                }
            }
        }
    }
}

fn put(pods: &mut HashMap<String, NamespacePods>, pod: Pod, change: u64) {
    let (namespace, name) = key(&pod);
    let namespace = pods.entry(namespace).or_default();
    namespace.pods.insert(name, Arc::new(pod));
    namespace.changed = change;
}

fn key(pod: &Pod) -> (String, String) {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

#[derive(Deserialize)]
struct RawPod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: RawSpec,
    #[serde(default)]
    status: RawStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec {
    containers: Vec<RawContainer>,
    init_containers: Vec<RawContainer>,
    resources: RawResources,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawContainer {
    name: String,
    restart_policy: Option<String>,
    resources: RawResources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawResources {
    requests: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus {
    phase: Option<Phase>,
    start_time: Option<Time>,
    conditions: Vec<RawCondition>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<Time>,
}

impl RawResources {
    fn milli(&self) -> BTreeMap<String, i64> {
        self.requests.iter().filter_map(|(name, text)| Some((name.clone(), drover_quantity::milli(text).ok()?))).collect()
    }
}

/// Converts to seconds since 1970.
pub fn seconds(time: &Time) -> f64 {
    time.0.as_duration().as_secs_f64()
}

impl From<RawPod> for Pod {
    fn from(raw: RawPod) -> Self {
        let RawPod { metadata, spec, status } = raw;
        let lasting = |container: &RawContainer| container.restart_policy.as_deref() == Some("Always");
        let first = spec.containers.first().map(|container| container.name.clone()).unwrap_or_default();
        let containers: BTreeMap<String, ContainerUse> = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().filter(|container| lasting(container)))
            .map(|container| (container.name.clone(), ContainerUse { requests: container.resources.milli(), ..Default::default() }))
            .collect();
        // A resource that one container does not request has no sum. Requests of the pod itself take precedence.
        let mut requests = BTreeMap::new();
        let names = containers.values().flat_map(|container| container.requests.keys());
        for name in names.collect::<std::collections::BTreeSet<_>>() {
            let sum: Option<i64> = containers.values().map(|container| container.requests.get(name).copied()).sum();
            if let Some(sum) = sum {
                requests.insert(name.clone(), sum);
            }
        }
        requests.extend(spec.resources.milli());
        let ready = status.conditions.iter().find(|condition| condition.kind == "Ready").map(|condition| ReadyCondition {
            status: match condition.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            },
            since: condition.last_transition_time.as_ref().map(seconds),
        });
        let seen = threshold::Pod {
            name: metadata.name.clone().unwrap_or_default(),
            phase: status.phase.unwrap_or(Phase::Pending),
            deleting: metadata.deletion_timestamp.is_some(),
            ready,
            start_time: status.start_time.as_ref().map(seconds),
            requests,
            containers,
            ..Default::default()
        };
        let ObjectMeta { name, namespace, labels, resource_version, .. } = metadata;
        let metadata = ObjectMeta { name, namespace, labels, resource_version, ..Default::default() };
        Self { metadata, seen: Arc::new(seen), first, address: status.pod_ip }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::{Pod, Pods};
    use crate::agent::selector;

    fn pod(name: &str, app: &str) -> Pod {
        let metadata = json!({"name": name, "namespace": "shop", "labels": {"app": app}});
        serde_json::from_value(json!({"metadata": metadata})).unwrap_or_else(|why| panic!("{why}"))
    }

    #[test]
    fn select_updates_cached_pods_after_every_change() {
        let (pods, mut known) = (Pods::default(), None);
        let mut selected = |text: &str| -> Vec<String> {
            let selector = selector::parse(text).unwrap_or_else(|| panic!("{text}"));
            let mut names: Vec<_> = pods.select("shop", &selector, text, &mut known).iter().map(|pod| pod.seen.name.clone()).collect();
            names.sort();
            names
        };
        assert!(selected("app=web").is_empty());
        for (event, web) in [
            (Event::Apply(pod("a", "web")), vec!["a"]),
            (Event::Apply(pod("b", "web")), vec!["a", "b"]),
            (Event::Apply(pod("a", "db")), vec!["b"]),
            (Event::Delete(pod("b", "web")), vec![]),
            (Event::Init, vec![]),
            (Event::InitApply(pod("c", "web")), vec![]),
            (Event::InitDone, vec!["c"]),
        ] {
            pods.view().take(event);
            assert_eq!(selected("app=web"), web);
            assert_eq!(selected("app=web"), web, "nothing changed");
        }
        pods.view().take(Event::Apply(pod("d", "db")));
        assert_eq!((selected("app=web"), selected("app=db")), (vec!["c".to_owned()], vec!["d".to_owned()]));
    }
}
