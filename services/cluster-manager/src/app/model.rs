//! A member's nodes and pods as its watches tell them, and the sums that others need. Pure.
//!
//! Kept of a pod is what the sums need and no more: a busy fleet has a hundred thousand of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use drover_members::trimmed;
use drover_quantity::image_name;
use drover_scheduling::{Amounts, Capacity, ImageNames, Images, Observed};
use jiff::Timestamp;
use kube::runtime::watcher::Event;
use uuid::Uuid;

/// Names of images that are told at most; of more, those of the largest images.
const IMAGES: usize = 512;

/// Nodes and pods of a member.
#[derive(Debug, Default)]
pub struct Model {
    nodes: Listed<Node>,
    pods: Listed<Pod>,
    names: ImageNames,
    /// Of all nodes.
    images: Arc<Images>,
}

#[derive(Debug)]
struct Node {
    /// As it is told, but for what pods and metrics say of it.
    told: drover_scheduling::Node,
    /// By one name each.
    images: Vec<(Arc<str>, u64)>,
}

/// What a watch has told so far; a list that is not complete yet does not count.
#[derive(Debug)]
struct Listed<T> {
    current: HashMap<String, T>,
    next: Option<HashMap<String, T>>,
    complete: bool,
}

impl<T> Default for Listed<T> {
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
    /// Only of Drover's own pods.
    images: Vec<Arc<str>>,
}

/// What metrics.k8s.io says: use of nodes by name and of pods by `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// By node.
    pub nodes: HashMap<String, Amounts>,
    /// By pod, Drover's own only.
    pub pods: HashMap<String, Amounts>,
}

impl<T> Listed<T> {
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
    /// The watch of nodes says this.
    pub fn node(&mut self, event: Event<trimmed::Node>) {
        let name = |node: &trimmed::Node| node.metadata.name.clone().unwrap_or_default();
        let images = |nodes: &Listed<Node>, name: &str| nodes.current.get(name).map(|node| node.images.clone());
        // Most of what nodes tell are signs of life.
        let before = match &event {
            Event::Apply(node) => Some((name(node), images(&self.nodes, &name(node)))),
            _ => None,
        };
        let whole = matches!(event, Event::InitDone | Event::Delete(_));
        let names = &mut self.names;
        self.nodes.apply(event, name, |node| {
            let named = node.images.into_iter().flat_map(|image| image.names.into_iter().map(move |name| (name, image.size_bytes)));
            let images = named.map(|(name, bytes)| (names.share(&image_name(&name)), bytes)).collect();
            let told = drover_scheduling::Node {
                name: node.metadata.name.unwrap_or_default(),
                allocatable: node.allocatable,
                labels: Arc::new(node.metadata.labels.unwrap_or_default().into()),
                taints: node.taints,
                unschedulable: node.cordoned || !node.ready,
                ..Default::default()
            };
            Node { told, images }
        });
        if whole || before.is_some_and(|(name, before)| images(&self.nodes, &name) != before) {
            self.images = largest(self.nodes.current.values());
        }
    }

    /// The watch of pods says this.
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

    /// Both lists are there.
    pub fn complete(&self) -> bool {
        self.nodes.complete && self.pods.complete
    }

    /// The sums. `usage` is none where metrics.k8s.io does not answer.
    pub fn capacity(&self, usage: Option<&Usage>, now: Timestamp) -> Capacity {
        let mut foreign: HashMap<&str, Amounts> = HashMap::new();
        let mut ours: BTreeMap<Uuid, Vec<(&String, &Pod)>> = BTreeMap::new();
        for (name, pod) in &self.pods.current {
            match (pod.binding, &pod.node) {
                (Some(binding), _) => ours.entry(binding).or_default().push((name, pod)),
                (None, Some(node)) if pod.takes_room => foreign.entry(node.as_str()).or_default().add(&pod.requests, 1),
                _ => {}
            }
        }
        let nodes = self.nodes.current.iter().map(|(name, Node { told, .. })| drover_scheduling::Node {
            foreign: foreign.remove(name.as_str()).unwrap_or_default(),
            used: usage.and_then(|usage| usage.nodes.get(name).cloned()),
            ..told.clone()
        });
        let mut nodes: Vec<drover_scheduling::Node> = nodes.collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        // A node reports its fifty largest images only: what runs there is there too.
        let running = ours.values().flatten().filter(|(_, pod)| pod.ready).flat_map(|(_, pod)| &pod.images);
        let unreported: BTreeSet<&Arc<str>> = running.filter(|name| !self.images.contains_key(*name)).collect();
        let mut images = Arc::clone(&self.images);
        if !unreported.is_empty() {
            Arc::make_mut(&mut images).extend(unreported.into_iter().take(IMAGES).map(|name| (Arc::clone(name), 0)));
        }
        let observed = ours.into_iter().map(|(binding, pods)| (binding, observe(&pods, usage, now))).collect();
        Capacity { nodes: Arc::new(nodes), observed, age_ms: 0, metrics: usage.is_some(), images }
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
            // Half of an app's use over all of its requests would be a lie: all of its pods or nothing.
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
    fn foreign_pods_count_for_nodes_and_ours_for_their_binding() {
        let binding = Uuid::new_v4();
        let model = model(vec![
            pod("foreign", Some("n1"), None, "Running"),
            pod("done", Some("n1"), None, "Succeeded"),
            pod("waiting", None, None, "Pending"),
            pod("ours", Some("n1"), Some(binding), "Running"),
            pod("ours-waiting", None, Some(binding), "Pending"),
        ]);
        let capacity = model.capacity(None, "2026-01-01T00:01:00Z".parse().unwrap());
        assert_eq!(capacity.nodes[0].foreign, Amounts::pod(500, 1 << 30));
        assert_eq!(capacity.nodes[0].allocatable, Amounts { cpu: 4000, memory: 8 << 30, pods: 110, ..Amounts::default() });
        assert_eq!(capacity.nodes[0].taints[0].key, "gpu");
        let observed = &capacity.observed[&binding];
        assert_eq!(observed.requests.get("n1"), Some(&Amounts::pod(500, 1 << 30)));
        assert_eq!((observed.used.as_ref(), observed.age_s, observed.ready_s), (None, Some(60), Some(4.0)));
        assert!(!capacity.metrics);
    }

    #[test]
    fn images_have_one_name_and_only_the_largest_are_told() {
        let mut model = model(vec![pod("ours", Some("n1"), Some(Uuid::new_v4()), "Running"), pod("foreign", Some("n1"), None, "Running")]);
        let told = |model: &Model| model.capacity(None, Timestamp::now()).images;
        let nginx: Arc<str> = "docker.io/library/nginx:1".into();
        assert_eq!(*told(&model), Images::from([(nginx.clone(), 50)]));
        let report = |name: &str, images: Value| {
            let mut node = node(name);
            node.images = serde_json::from_value(images).unwrap();
            Event::Apply(node)
        };
        model.node(report("n2", json!([{"names": ["quay.io/a/b@sha256:0f", "quay.io/a/b:2"], "sizeBytes": 70}])));
        assert_eq!(told(&model).values().copied().collect::<Vec<_>>(), [50, 70, 70]);
        // The node forgets the image, which still runs there.
        model.node(report("n1", json!([])));
        assert_eq!(told(&model).get(&nginx), Some(&0));
        let many: Vec<Value> = (0..2 * IMAGES).map(|n| json!({"names": [format!("i:{n}")], "sizeBytes": n})).collect();
        model.node(report("n2", many.into()));
        let images = told(&model);
        assert!(images.len() == IMAGES + 1 && !images.contains_key("docker.io/library/i:511") && images["docker.io/library/i:512"] == 512);
    }

    #[test]
    fn use_is_told_only_when_every_running_pod_reports() {
        let binding = Uuid::new_v4();
        let model = model(vec![pod("a", Some("n1"), Some(binding), "Running"), pod("b", Some("n1"), Some(binding), "Running")]);
        let used = Amounts { cpu: 10, memory: 20, ..Amounts::default() };
        let mut usage =
            Usage { nodes: HashMap::from([("n1".to_owned(), used.clone())]), pods: HashMap::from([("d/a".to_owned(), used.clone())]) };
        let partial = model.capacity(Some(&usage), Timestamp::now());
        assert_eq!((partial.observed[&binding].used.as_ref(), partial.nodes[0].used.as_ref()), (None, Some(&used)));
        usage.pods.insert("d/b".to_owned(), used.clone());
        assert_eq!(model.capacity(Some(&usage), Timestamp::now()).observed[&binding].used, Some(used.times(2)));
    }

    #[test]
    fn a_relist_replaces_everything_at_once() {
        let mut model = model(vec![pod("a", Some("n1"), None, "Running")]);
        model.pod(Event::Init);
        assert_eq!(model.capacity(None, Timestamp::now()).nodes[0].foreign.cpu, 500, "the old list counts until the new one is whole");
        model.pod(Event::InitDone);
        assert_eq!(model.capacity(None, Timestamp::now()).nodes[0].foreign.cpu, 0);
        model.pod(Event::Apply(pod("b", Some("n1"), None, "Running")));
        model.pod(Event::Delete(pod("b", Some("n1"), None, "Running")));
        assert_eq!(model.capacity(None, Timestamp::now()).nodes[0].foreign.cpu, 0);
    }
}
