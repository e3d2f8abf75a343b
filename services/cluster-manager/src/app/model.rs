//! Nodes and pods of one member as its watches report them, and the capacity computed from them. Pure.
//!
//! Only what the capacity needs is kept of a pod: a large fleet has a hundred thousand of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use drover_members::trimmed;
use drover_quantity::image_name;
use drover_scheduling::{Amounts, Capacity, ImageNames, Images, Observed, Storage};
use jiff::Timestamp;
use kube::runtime::watcher::Event;
use uuid::Uuid;

/// The most image names that are published; the largest images are kept.
const IMAGES: usize = 512;

/// Nodes and pods of a member.
#[derive(Debug, Default)]
pub struct Model {
    nodes: WatchedList<Node>,
    pods: WatchedList<Pod>,
    names: ImageNames,
    /// Images of all nodes.
    images: Arc<Images>,
}

#[derive(Debug)]
struct Node {
    /// As published, without what pods and metrics add.
    published: drover_scheduling::Node,
    /// One canonical name per reported name, with the size in bytes.
    images: Vec<(Arc<str>, u64)>,
}

/// The objects of one watch. A list in progress (`next`) replaces `current` only when it is complete.
#[derive(Debug)]
struct WatchedList<T> {
    current: HashMap<String, T>,
    next: Option<HashMap<String, T>>,
    complete: bool,
}

impl<T> Default for WatchedList<T> {
    fn default() -> Self {
        Self { current: HashMap::new(), next: None, complete: false }
    }
}

#[derive(Debug)]
struct Pod {
    node: Option<String>,
    requests: Amounts,
    binding: Option<Uuid>,
    takes_room: bool,
    ready: bool,
    created: Option<Timestamp>,
    ready_s: Option<f64>,
    /// Only of Drover's own pods; empty for others.
    images: Vec<Arc<str>>,
}

/// Usage that metrics.k8s.io reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// By node name.
    pub nodes: HashMap<String, Amounts>,
    /// By `namespace/name`, of Drover's own pods only.
    pub pods: HashMap<String, Amounts>,
}

/// What is read of a member now and then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// `None` where metrics.k8s.io does not answer.
    pub usage: Option<Usage>,
    /// `None` where volumes cannot be read.
    pub storage: Option<Arc<Storage>>,
}

impl<T> WatchedList<T> {
    fn apply<K>(&mut self, event: Event<K>, name: impl Fn(&K) -> String, mut keep: impl FnMut(K) -> T) {
        match event {
            Event::Init => self.next = Some(HashMap::new()),
            Event::InitApply(object) => {
                let name = name(&object);
                self.next.get_or_insert_default().insert(name, keep(object));
            }
            Event::InitDone => {
                self.current = self.next.take().unwrap_or_default();
                self.complete = true;
            }
            Event::Apply(object) => {
                let name = name(&object);
                self.current.insert(name, keep(object));
            }
            Event::Delete(object) => {
                self.current.remove(&name(&object));
            }
        }
    }
}

impl Model {
    /// Applies an event of the watch of nodes.
    pub fn node(&mut self, event: Event<trimmed::Node>) {
        let name = |node: &trimmed::Node| node.metadata.name.clone().unwrap_or_default();
        let images = |nodes: &WatchedList<Node>, name: &str| nodes.current.get(name).map(|node| node.images.clone());
        // Most events of nodes are heartbeats: the images of all nodes are summed up only when those of this node changed.
        let before = match &event {
            Event::Apply(node) => Some((name(node), images(&self.nodes, &name(node)))),
            _ => None,
        };
        let whole = matches!(event, Event::InitDone | Event::Delete(_));
        let names = &mut self.names;
        self.nodes.apply(event, name, |node| {
            let named = node.images.into_iter().flat_map(|image| image.names.into_iter().map(move |name| (name, image.size_bytes)));
            let images = named.map(|(name, bytes)| (names.share(&image_name(&name)), bytes)).collect();
            let published = drover_scheduling::Node {
                name: node.metadata.name.unwrap_or_default(),
                allocatable: node.allocatable,
                labels: Arc::new(node.metadata.labels.unwrap_or_default().into()),
                taints: node.taints,
                unschedulable: node.cordoned || !node.ready,
                ..Default::default()
            };
            Node { published, images }
        });
        if whole || before.is_some_and(|(name, before)| images(&self.nodes, &name) != before) {
            self.images = largest(self.nodes.current.values());
        }
    }

    /// Applies an event of the watch of pods.
    pub fn pod(&mut self, event: Event<trimmed::Pod>) {
        let name = |pod: &trimmed::Pod| {
            format!("{}/{}", pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.name.as_deref().unwrap_or_default())
        };
        let names = &mut self.names;
        self.pods.apply(event, name, |pod| Pod {
            binding: pod.binding(),
            takes_room: pod.takes_room(),
            created: pod.created(),
            ready_s: pod.seconds_to_ready(),
            ready: pod.ready,
            images: pod.binding().iter().flat_map(|_| &pod.images).map(|image| names.share(&image_name(image))).collect(),
            node: pod.node,
            requests: pod.requests,
        });
    }

    /// Whether both lists are complete.
    pub fn complete(&self) -> bool {
        self.nodes.complete && self.pods.complete
    }

    /// The capacity at `now`.
    pub fn capacity(&self, measured: &Measured, now: Timestamp) -> Capacity {
        let usage = measured.usage.as_ref();
        let mut foreign: HashMap<&str, Amounts> = HashMap::new();
        let mut ours: BTreeMap<Uuid, Vec<(&String, &Pod)>> = BTreeMap::new();
        for (name, pod) in &self.pods.current {
            match (pod.binding, &pod.node) {
                (Some(binding), _) => ours.entry(binding).or_default().push((name, pod)),
                (None, Some(node)) if pod.takes_room => foreign.entry(node.as_str()).or_default().add(&pod.requests, 1),
                _ => {}
            }
        }
        let nodes = self.nodes.current.iter().map(|(name, Node { published, .. })| drover_scheduling::Node {
            foreign: foreign.remove(name.as_str()).unwrap_or_default(),
            used: usage.and_then(|usage| usage.nodes.get(name).cloned()),
            ..published.clone()
        });
        let mut nodes: Vec<drover_scheduling::Node> = nodes.collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        // A node reports only its fifty largest images, but the images of running pods are on it too.
        let running = ours.values().flatten().filter(|(_, pod)| pod.ready).flat_map(|(_, pod)| &pod.images);
        let unreported: BTreeSet<&Arc<str>> = running.filter(|name| !self.images.contains_key(*name)).collect();
        let mut images = Arc::clone(&self.images);
        if !unreported.is_empty() {
            Arc::make_mut(&mut images).extend(unreported.into_iter().take(IMAGES).map(|name| (Arc::clone(name), 0)));
        }
        let observed = ours.into_iter().map(|(binding, pods)| (binding, observe(&pods, usage, now))).collect();
        Capacity { nodes: Arc::new(nodes), observed, age_ms: 0, metrics: usage.is_some(), images, storage: measured.storage.clone() }
    }
}

fn largest<'n>(nodes: impl Iterator<Item = &'n Node>) -> Arc<Images> {
    let mut images = Images::new();
    for (name, bytes) in nodes.flat_map(|node| &node.images) {
        let known = images.entry(Arc::clone(name)).or_default();
        *known = (*known).max(*bytes);
    }
    if images.len() > IMAGES {
        let mut by_size: Vec<(u64, Arc<str>)> = images.into_iter().map(|(name, bytes)| (bytes, name)).collect();
        by_size.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        images = by_size.into_iter().take(IMAGES).map(|(bytes, name)| (name, bytes)).collect();
    }
    Arc::new(images)
}

fn observe(pods: &[(&String, &Pod)], usage: Option<&Usage>, now: Timestamp) -> Observed {
    let mut requests: BTreeMap<String, Amounts> = BTreeMap::new();
    let (mut used, mut reported) = (Amounts::default(), usage.is_some());
    let (mut oldest, mut ready_s): (Option<Timestamp>, Vec<f64>) = (None, Vec::new());
    for (name, pod) in pods {
        ready_s.extend(pod.ready_s);
        let Some(node) = pod.node.as_ref().filter(|_| pod.takes_room) else { continue };
        requests.entry(node.clone()).or_default().add(&pod.requests, 1);
        if pod.ready {
            oldest = [oldest, pod.created].into_iter().flatten().min();
            // Usage counts only if every running pod reports it: a partial sum would look like a low usage.
            match usage.and_then(|usage| usage.pods.get(*name)) {
                Some(amounts) => used.add(amounts, 1),
                None => reported = false,
            }
        }
    }
    ready_s.sort_by(f64::total_cmp);
    Observed {
        requests: requests.into(),
        used: (reported && oldest.is_some()).then_some(used),
        age_s: oldest.and_then(|created| u64::try_from(now.duration_since(created).as_secs()).ok()),
        ready_s: ready_s.get(ready_s.len() / 2).copied(),
        ..Observed::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(name: &str) -> trimmed::Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}], "images": [{"names": ["nginx:1"], "sizeBytes": 50}]},
        }))
        .unwrap()
    }

    fn pod(name: &str, node: Option<&str>, binding: Option<Uuid>, phase: &str) -> trimmed::Pod {
        let labels = binding.map_or(Value::Null, |binding| json!({"drover.io/binding": binding}));
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "d", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "nginx:1", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": if phase == "Running" { "True" } else { "False" },
                "lastTransitionTime": "2026-01-01T00:00:04Z"}]},
        })).unwrap()
    }

    fn model(pods: Vec<trimmed::Pod>) -> Model {
        let mut model = Model::default();
        model.node(Event::Init);
        model.node(Event::InitApply(node("n1")));
        model.node(Event::InitDone);
        assert!(!model.complete());
        model.pod(Event::Init);
        pods.into_iter().for_each(|pod| model.pod(Event::InitApply(pod)));
        model.pod(Event::InitDone);
        assert!(model.complete());
        model
    }

    #[test]
    fn capacity_counts_foreign_pods_per_node_and_own_pods_per_binding() {
        let binding = Uuid::new_v4();
        let model = model(vec![
            pod("foreign", Some("n1"), None, "Running"),
            pod("done", Some("n1"), None, "Succeeded"),
            pod("waiting", None, None, "Pending"),
            pod("ours", Some("n1"), Some(binding), "Running"),
            pod("ours-waiting", None, Some(binding), "Pending"),
        ]);
        let capacity = model.capacity(&Measured::default(), "2026-01-01T00:01:00Z".parse().unwrap());
        assert_eq!(capacity.nodes[0].foreign, Amounts::pod(500, 1 << 30));
        assert_eq!(capacity.nodes[0].allocatable, Amounts { cpu: 4000, memory: 8 << 30, pods: 110, ..Amounts::default() });
        assert_eq!(capacity.nodes[0].taints[0].key, "gpu");
        let observed = &capacity.observed[&binding];
        assert_eq!(observed.requests.get("n1"), Some(&Amounts::pod(500, 1 << 30)));
        assert_eq!((observed.used.as_ref(), observed.age_s, observed.ready_s), (None, Some(60), Some(4.0)));
        assert!(!capacity.metrics);
    }

    #[test]
    fn capacity_lists_the_largest_images_by_canonical_name() {
        let mut model = model(vec![pod("ours", Some("n1"), Some(Uuid::new_v4()), "Running"), pod("foreign", Some("n1"), None, "Running")]);
        let images = |model: &Model| model.capacity(&Measured::default(), Timestamp::now()).images;
        let nginx: Arc<str> = "docker.io/library/nginx:1".into();
        assert_eq!(*images(&model), Images::from([(nginx.clone(), 50)]));
        let report = |name: &str, images: Value| {
            let mut node = node(name);
            node.images = serde_json::from_value(images).unwrap();
            Event::Apply(node)
        };
        model.node(report("n2", json!([{"names": ["quay.io/a/b@sha256:0f", "quay.io/a/b:2"], "sizeBytes": 70}])));
        assert_eq!(images(&model).values().copied().collect::<Vec<_>>(), [50, 70, 70]);
        // The node no longer reports the image, but a pod still runs it.
        model.node(report("n1", json!([])));
        assert_eq!(images(&model).get(&nginx), Some(&0));
        let many: Vec<Value> = (0..2 * IMAGES).map(|n| json!({"names": [format!("i:{n}")], "sizeBytes": n})).collect();
        model.node(report("n2", many.into()));
        let images = images(&model);
        assert!(images.len() == IMAGES + 1 && !images.contains_key("docker.io/library/i:511") && images["docker.io/library/i:512"] == 512);
    }

    #[test]
    fn usage_is_published_only_if_every_running_pod_reports() {
        let binding = Uuid::new_v4();
        let model = model(vec![pod("a", Some("n1"), Some(binding), "Running"), pod("b", Some("n1"), Some(binding), "Running")]);
        let used = Amounts { cpu: 10, memory: 20, ..Amounts::default() };
        let mut usage =
            Usage { nodes: HashMap::from([("n1".to_owned(), used.clone())]), pods: HashMap::from([("d/a".to_owned(), used.clone())]) };
        let measured = |usage: &Usage| Measured { usage: Some(usage.clone()), storage: None };
        let partial = model.capacity(&measured(&usage), Timestamp::now());
        assert_eq!((partial.observed[&binding].used.as_ref(), partial.nodes[0].used.as_ref()), (None, Some(&used)));
        usage.pods.insert("d/b".to_owned(), used.clone());
        assert_eq!(model.capacity(&measured(&usage), Timestamp::now()).observed[&binding].used, Some(used.times(2)));
    }

    #[test]
    fn relist_replaces_pods_when_it_is_complete() {
        let mut model = model(vec![pod("a", Some("n1"), None, "Running")]);
        model.pod(Event::Init);
        assert_eq!(
            model.capacity(&Measured::default(), Timestamp::now()).nodes[0].foreign.cpu,
            500,
            "the old list counts until the new one is complete"
        );
        model.pod(Event::InitDone);
        assert_eq!(model.capacity(&Measured::default(), Timestamp::now()).nodes[0].foreign.cpu, 0);
        model.pod(Event::Apply(pod("b", Some("n1"), None, "Running")));
        model.pod(Event::Delete(pod("b", Some("n1"), None, "Running")));
        assert_eq!(model.capacity(&Measured::default(), Timestamp::now()).nodes[0].foreign.cpu, 0);
    }
}
