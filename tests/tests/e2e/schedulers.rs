//! What plans and decisions say of the order of pods, compared with a real kube-scheduler on random fleets.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::scheduling::{Amounts, Ask, Demand, Free, Holds, Node, PodGroup, outlook, pack};
use drover_e2e::members::{self, Backend, Member};
use drover_testkit::eventually;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::json;

const MIB: i64 = 1 << 20;

/// Nodes with pods of others, and apps that are applied to them; some packing exists for all of them.
struct Scene {
    name: String,
    nodes: Vec<Node>,
    apps: Vec<Demand>,
    holds: Holds,
    /// The order of application.
    order: Vec<usize>,
}

impl Scene {
    /// A random scene, or `None` if the apps fit in no packing.
    fn random(seed: u64) -> Option<Self> {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut step = |from: i64, to: i64, size: i64| (from + i64::from(random.next_u32()) % (to - from + 1)) * size;
        let count = step(2, 3, 1);
        let node = |at: i64, step: &mut dyn FnMut(i64, i64, i64) -> i64| {
            let allocatable = Amounts { cpu: step(6, 12, 100), memory: step(2, 6, 256 * MIB), pods: 110, ..Amounts::default() };
            let foreign = Amounts { cpu: step(0, 3, 100), memory: step(0, 3, 64 * MIB), pods: 1, ..Amounts::default() };
            Node { name: format!("f{seed}-{at}"), allocatable, foreign, ..Node::default() }
        };
        let nodes: Vec<Node> = (0..count).map(|at| node(at, &mut step)).collect();
        let apps: Vec<Demand> = (0..step(2, 4, 1))
            .map(|app| {
                let requests = Amounts::pod(step(2, 9, 100), step(1, 6, 64 * MIB));
                let replicas = u32::try_from(step(1, 2, 1)).unwrap();
                let group = PodGroup { workload: format!("Deployment/a{app}"), replicas, requests, ..PodGroup::default() };
                Demand { groups: vec![group], ..Demand::default() }
            })
            .collect();
        let free: Vec<Amounts> = nodes
            .iter()
            .map(|node| {
                let mut free = node.allocatable.clone();
                free.add(&node.foreign, -1);
                free
            })
            .collect();
        let asks: Vec<Ask<'_>> = apps.iter().map(Ask::held).collect();
        pack(Free { nodes: &nodes, now: &free, later: &free }, &asks)?;
        let (holds, order) = outlook(&nodes, free, &apps.iter().collect::<Vec<_>>());
        let order = order.unwrap_or_else(|| (0..apps.len()).collect());
        Some(Self { name: format!("f{seed}"), nodes, apps, holds, order })
    }

    /// Applies the apps in their order, each when the pods of the one before have nodes. Returns whether all pods got nodes.
    async fn play(&self, member: &Member) -> bool {
        let nodes: Api<KubeNode> = Api::all(member.client.clone());
        for node in &self.nodes {
            nodes.create(&PostParams::default(), &self.node(node)).await.unwrap();
            member.pods().create(&PostParams::default(), &self.pod("foreign", &node.foreign, Some(&node.name))).await.unwrap();
        }
        let mut all = true;
        for app in &self.order {
            let group = &self.apps[*app].groups[0];
            for replica in 0..group.replicas {
                let pod = self.pod(&format!("a{app}-{replica}"), &group.requests, None);
                member.pods().create(&PostParams::default(), &pod).await.unwrap();
            }
            all &= self.scheduled(member).await;
        }
        let of_scene = ListParams::default().labels(&format!("scene={}", self.name));
        member.pods().delete_collection(&DeleteParams::default().grace_period(0), &of_scene).await.unwrap();
        nodes.delete_collection(&DeleteParams::default(), &of_scene).await.unwrap();
        all
    }

    /// Waits until the scheduler has looked at every pod. Whether all have nodes.
    async fn scheduled(&self, member: &Member) -> bool {
        let of_scene = ListParams::default().labels(&format!("scene={}", self.name));
        eventually(Duration::from_secs(120), async || {
            let pods = member.pods().list(&of_scene).await.ok()?.items;
            let placed = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            let refused = |pod: &Pod| {
                let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                conditions.into_iter().flatten().any(|c| c.type_ == "PodScheduled" && c.status == "False")
            };
            pods.iter().all(|pod| placed(pod) || refused(pod)).then(|| pods.iter().all(placed))
        })
        .await
    }

    fn node(&self, node: &Node) -> KubeNode {
        let amounts = json!({"cpu": format!("{}m", node.allocatable.cpu), "memory": node.allocatable.memory.to_string(), "pods": "110"});
        let taint = json!([{"key": "scene", "value": self.name, "effect": "NoSchedule"}]);
        let node = json!({"metadata": {"name": node.name, "labels": {"scene": self.name}}, "spec": {"taints": taint},
            "status": {"allocatable": amounts, "capacity": amounts}});
        serde_json::from_value(node).unwrap()
    }

    fn pod(&self, name: &str, requests: &Amounts, on: Option<&str>) -> Pod {
        let name = format!("{}-{name}{}", self.name, on.map(|node| format!("-{node}")).unwrap_or_default());
        let requests = json!({"cpu": format!("{}m", requests.cpu), "memory": requests.memory.to_string()});
        let pod = json!({
            "metadata": {"name": name, "labels": {"scene": self.name}},
            "spec": {
                "nodeName": on, "nodeSelector": {"scene": self.name}, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "c", "image": "registry.example/c:1", "resources": {"requests": requests}}],
            },
        });
        serde_json::from_value(pod).unwrap()
    }
}

/// Plays `each` random scenes of every kind, and counts those in which all pods got nodes at the first try.
async fn compare(each: usize) -> BTreeMap<Holds, (usize, usize)> {
    let members = members::start(Backend::Real).await;
    let mut wanted = BTreeMap::from([(Holds::Any, each), (Holds::Likely, each), (Holds::One, each)]);
    let mut take = |scene: &Scene| {
        let left = wanted.get_mut(&scene.holds)?;
        *left = left.checked_sub(1)?;
        Some(())
    };
    let scenes: Vec<Scene> =
        (0..).map_while(|seed| (seed < 400 * each as u64).then(|| Scene::random(seed))).flatten().filter(|s| take(s).is_some()).collect();
    let played = stream::iter(&scenes).map(async |scene| (scene, scene.play(&members.each[0]).await)).buffer_unordered(8);
    let mut counts: BTreeMap<Holds, (usize, usize)> = BTreeMap::new();
    for (scene, all) in played.collect::<Vec<_>>().await {
        let count = counts.entry(scene.holds).or_default();
        *count = (count.0 + usize::from(all), count.1 + 1);
        assert!(all || scene.holds != Holds::Any, "{}: it holds for any order, but not all pods got nodes", scene.name);
    }
    println!("first tries in which all pods got nodes: {counts:?}");
    counts
}

/// At least half of the scenes that hold for some order only must do too.
fn assert_reach(counts: &BTreeMap<Holds, (usize, usize)>) {
    let (placed, all) =
        [Holds::Likely, Holds::One].iter().filter_map(|holds| counts.get(holds)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert!(counts.get(&Holds::Any).is_some_and(|any| any.1 > 0) && all > 0, "{counts:?}");
    assert!(placed * 2 >= all, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn outlook_holds_on_a_real_scheduler() {
    if Backend::real_is_built() {
        assert_reach(&compare(12).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "1,000 fleets on a real kube-scheduler"]
async fn outlook_holds_on_a_real_scheduler_for_1000_fleets() {
    if Backend::real_is_built() {
        assert_reach(&compare(334).await);
    }
}
