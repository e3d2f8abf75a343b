//! Random fleets on real control planes: plans that move several apps must hold on real kube-schedulers, at the first try where the
//! scheduler can spoil nothing. What is possible is found by trying everything.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::operations::{Operation, OperationState};
use drover_api::scheduling::{Amounts, Ask, Demand, Free, Holds, Node, PodGroup, outlook, pack};
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Backend, Member, System};
use drover_testkit::eventually;
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::json;

const MIB: i64 = 1 << 20;
const POD_MEMORY: i64 = 64 * MIB;
/// Where room is made, and where the apps that move may go.
const HOME: &str = "private-a";
const AWAY: [&str; 2] = ["private-b", "public-c"];
/// Fleets that are played at the same time; each has nodes of its own.
const AT_ONCE: usize = 6;
/// Pods without nodes are noticed soon, but not while a slow scheduler has yet to see that a node has room. What stays without them in the
/// only place for it is given up after some minutes.
const FLAGS: [(&str, &str); 2] = [("orchestrator", "--ready-seconds=180"), ("orchestrator", "--unschedulable-seconds=20")];

/// A node that is full of apps, nodes elsewhere, and newcomers for the full one. Sizes are in millicores.
struct Fleet {
    name: String,
    victims: Vec<i64>,
    away: [Vec<i64>; 2],
    newcomers: Vec<i64>,
}

/// What can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Possible {
    /// All newcomers can be placed, and no scheduler can spoil it.
    Surely,
    /// All newcomers can be placed if the schedulers find the packing.
    Perhaps,
    Never,
}

/// What came of the newcomers of a fleet.
#[derive(Debug, Default)]
struct Played {
    placed: usize,
    /// Every newcomer was placed, and no copy had to go elsewhere or back.
    first_try: bool,
    told: Vec<String>,
}

/// So many fleets of a kind, those that did at the first try, and those in which all newcomers were placed in the end.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: usize,
    first_try: usize,
    placed: usize,
}

impl Fleet {
    fn random(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut draw = |from: i64, to: i64| 100 * (from + i64::from(random.next_u32()) % (to - from + 1));
        let victims: Vec<i64> = (0..draw(2, 4) / 100).map(|_| draw(2, 9)).collect();
        let mut nodes = |count: i64| (0..count / 100).map(|_| draw(4, 12)).collect::<Vec<i64>>();
        let away = [nodes(200), nodes(100)];
        let wanted = draw(3, victims.iter().sum::<i64>() / 100);
        // One newcomer, or two or three at once.
        let newcomers = match draw(0, 5) / 100 {
            0 => vec![wanted / 200 * 100, wanted - wanted / 200 * 100],
            1 => vec![100, 100, wanted - 200],
            _ => vec![wanted],
        };
        Self { name: format!("f{seed}"), victims, away, newcomers: newcomers.into_iter().filter(|cpu| *cpu > 0).collect() }
    }

    /// Tries every destination of every victim.
    fn possible(&self) -> Possible {
        let ways = 3_u32.pow(self.victims.len() as u32);
        (0..ways).map(|way| self.way(way)).min().unwrap_or(Possible::Never)
    }

    /// Victim `v` stays or goes to the first or second member elsewhere: digit `v` of `way` in base 3.
    fn way(&self, way: u32) -> Possible {
        let at = |v: usize| way / 3_u32.pow(v as u32) % 3;
        let on = |place: u32| self.victims.iter().enumerate().filter(move |(v, _)| at(*v) == place).map(|(_, cpu)| *cpu);
        if on(0).chain(self.newcomers.iter().copied()).sum::<i64>() > self.victims.iter().sum() {
            return Possible::Never;
        }
        let judge = |place: usize| {
            let nodes: Vec<Node> = self.away[place].iter().enumerate().map(|(n, cpu)| node(&format!("n{n}"), *cpu)).collect();
            let demands: Vec<Demand> = on(place as u32 + 1).map(demand).collect();
            let free: Vec<Amounts> = nodes.iter().map(|node| node.allocatable.clone()).collect();
            let asks: Vec<Ask<'_>> = demands.iter().map(Ask::held).collect();
            if pack(Free { nodes: &nodes, now: &free, later: &free }, &asks).is_none() {
                return Possible::Never;
            }
            match outlook(&nodes, free, &demands.iter().collect::<Vec<_>>()).0 {
                Holds::Any => Possible::Surely,
                _ => Possible::Perhaps,
            }
        };
        judge(0).max(judge(1))
    }

    /// Fills the home, opens the nodes elsewhere, sends all newcomers at once, and removes everything.
    async fn play(&self, system: &System) -> Played {
        self.add_nodes(system.member(HOME), &[self.victims.iter().sum()]).await;
        self.known(system, HOME, 1).await;
        let anywhere = ["onprem/private-a", "onprem/private-b", "aws/public-c"];
        let named = |kind: &str, n: usize| format!("{}-{kind}{n}", self.name);
        let app = |name: &str, cpu: i64| App::new(name, u32::try_from(cpu).unwrap()).memory(64).on_nodes(&self.name);
        let victims: Vec<Group> = self
            .victims
            .iter()
            .enumerate()
            .map(|(n, cpu)| Group::new(&named("v", n), app(&named("v", n), *cpu)).on(&anywhere).movable(5))
            .collect();
        for operation in join_all(victims.iter().map(|victim| victim.deploy(&system.client))).await {
            drover_e2e::succeeded(&operation.unwrap());
        }
        for (place, nodes) in AWAY.iter().zip(&self.away) {
            self.add_nodes(system.member(place), nodes).await;
            self.known(system, place, nodes.len()).await;
        }
        let newcomers: Vec<Group> = self
            .newcomers
            .iter()
            .enumerate()
            .map(|(n, cpu)| Group::new(&named("n", n), app(&named("n", n), *cpu)).on(&["onprem/private-a"]))
            .collect();
        for approved in join_all(newcomers.iter().map(|newcomer| newcomer.approve(&system.client))).await {
            approved.unwrap();
        }
        let run = async |newcomer: &Group| {
            let id = newcomer.insist(&system.client, "instantiate").await.unwrap();
            ended(&system.client, &id).await.unwrap()
        };
        let operations: Vec<Operation> = join_all(newcomers.iter().map(run)).await;
        let placed = operations.iter().filter(|operation| operation.state == OperationState::Succeeded).count();
        let smooth = operations.iter().flat_map(|operation| &operation.moves).all(|step| step.stage == "done" && step.reason.is_none());
        self.remove(system, victims.iter().chain(&newcomers).collect()).await;
        let told = operations.iter().map(|o| {
            let moves: Vec<String> = o.moves.iter().map(|m| format!("{}>{} {} {:?}", m.app, m.to, m.stage, m.reason)).collect();
            format!("{:?} {:?} {}: {moves:?} {:?}", o.state, o.code, o.message, o.reasons)
        });
        Played { placed, first_try: smooth && placed == operations.len(), told: told.collect() }
    }

    async fn add_nodes(&self, member: &Member, sizes: &[i64]) {
        let nodes: Api<KubeNode> = Api::all(member.client.clone());
        for (n, cpu) in sizes.iter().enumerate() {
            let name = format!("{}-{n}", self.name);
            let amounts = json!({"cpu": format!("{cpu}m"), "memory": "4Gi", "pods": "110"});
            let node = json!({
                "metadata": {"name": name, "labels": {"scene": self.name, "type": "kwok", "kubernetes.io/hostname": name}},
                "spec": {"taints": [{"key": "scene", "value": self.name, "effect": "NoSchedule"}]},
                "status": {"allocatable": amounts, "capacity": amounts},
            });
            nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        }
    }

    /// Waits until Drover knows the nodes of this fleet on a member as ready for pods.
    async fn known(&self, system: &System, member: &str, count: usize) {
        let prefix = format!("{}-", self.name);
        eventually(Duration::from_secs(120), async || {
            let clusters = system.clusters().await;
            let nodes = clusters.iter().filter(|cluster| cluster.cluster == member).flat_map(|cluster| &cluster.nodes);
            let open = nodes.filter(|node| node.name.starts_with(&prefix) && !node.unschedulable && node.room.allocatable.cpu > 0);
            (open.count() == count).then_some(())
        })
        .await;
    }

    async fn remove(&self, system: &System, groups: Vec<&Group>) {
        let terminate = async |group: &Group| {
            // Nothing runs of a newcomer that was not placed.
            if let Ok(id) = group.verb(&system.client, "terminate").await {
                drover_e2e::succeeded(&ended(&system.client, &id).await.unwrap());
            }
        };
        join_all(groups.into_iter().map(terminate)).await;
        let of_fleet = ListParams::default().labels(&format!("scene={}", self.name));
        for member in system.members() {
            let nodes: Api<KubeNode> = Api::all(member.client.clone());
            nodes.delete_collection(&DeleteParams::default(), &of_fleet).await.unwrap();
        }
    }
}

fn node(name: &str, cpu: i64) -> Node {
    Node { name: name.into(), allocatable: Amounts { cpu, memory: 4096 * MIB, pods: 110, ..Amounts::default() }, ..Node::default() }
}

fn demand(cpu: i64) -> Demand {
    let group = PodGroup { workload: "Deployment/app".into(), replicas: 1, requests: Amounts::pod(cpu, POD_MEMORY), ..PodGroup::default() };
    Demand { groups: vec![group], ..Demand::default() }
}

/// So many random fleets of each kind that is possible, and some that are not.
fn random(each: usize) -> Vec<Fleet> {
    let mut taken: BTreeMap<(Possible, bool), usize> = BTreeMap::new();
    let wanted = |possible: Possible| if possible == Possible::Never { each.div_ceil(4) } else { each };
    let take = |fleet: &Fleet| {
        let possible = fleet.possible();
        let taken = taken.entry((possible, fleet.newcomers.len() > 1)).or_default();
        *taken += 1;
        *taken <= wanted(possible)
    };
    (0..1000 * each as u64).map(Fleet::random).filter(take).collect()
}

/// Plays fleets and prints what became of them, by what was possible and by the number of newcomers at once.
async fn play(fleets: Vec<Fleet>) -> BTreeMap<(Possible, bool), Count> {
    let system = System::with(Backend::Real, &FLAGS).await;
    let first = Group::new("first", App::new("first", 100));
    first.approve(&system.client).await.unwrap();
    let played = stream::iter(&fleets).map(async |fleet| (fleet, fleet.possible(), fleet.play(&system).await)).buffer_unordered(AT_ONCE);
    let mut counts: BTreeMap<(Possible, bool), Count> = BTreeMap::new();
    for (fleet, possible, played) in played.collect::<Vec<_>>().await {
        let count = counts.entry((possible, fleet.newcomers.len() > 1)).or_default();
        let placed = played.placed == fleet.newcomers.len();
        count.all += 1;
        count.first_try += usize::from(played.first_try);
        count.placed += usize::from(placed);
        if possible != Possible::Never && !played.first_try {
            let Fleet { name, victims, away, newcomers } = fleet;
            println!("{name}: {victims:?} away {away:?} newcomers {newcomers:?}, {possible:?}: {:#?}", played.told);
        }
        assert!(possible != Possible::Never || !placed, "{}: what cannot be was done", fleet.name);
    }
    system.end().await;
    for ((possible, together), Count { all, first_try, placed }) in &counts {
        let newcomers = if *together { "several newcomers at once" } else { "one newcomer" };
        println!("{possible:?}, {newcomers}: {all} fleets, all placed in {placed}, at the first try in {first_try}");
    }
    counts
}

fn count(counts: &BTreeMap<(Possible, bool), Count>, possible: Possible, together: bool) -> Count {
    counts.get(&(possible, together)).copied().unwrap_or_default()
}

/// Where no scheduler can spoil it, one newcomer is placed at the first try; elsewhere in half of the fleets at least. Several newcomers are
/// planned one after the other, so that the move for a small one may take the room that a large one needs: in one fleet of twenty at most.
fn assert_reach(counts: &BTreeMap<(Possible, bool), Count>) {
    let surely = count(counts, Possible::Surely, false);
    assert!(surely.all > 0 && surely.first_try == surely.all, "{counts:?}");
    let perhaps = count(counts, Possible::Perhaps, false);
    assert!(2 * perhaps.first_try >= perhaps.all, "{counts:?}");
    let together = count(counts, Possible::Surely, true);
    assert!(together.all > 1 && 20 * together.placed >= 19 * together.all, "{counts:?}");
}

/// The two apps fit elsewhere only if the larger one gets the larger node; the scheduler would give it to the one that comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn plan_that_holds_in_one_order_is_carried_out_in_it_on_a_real_scheduler() {
    if Backend::real_is_built() {
        let fleet = Fleet { name: "f-order".into(), victims: vec![700, 900], away: [vec![1000, 800], vec![100]], newcomers: vec![1600] };
        assert_eq!(fleet.possible(), Possible::Perhaps);
        let counts = play(vec![fleet]).await;
        assert_eq!(count(&counts, Possible::Perhaps, false).first_try, 1, "{counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn newcomers_of_random_fleets_are_placed_on_real_schedulers() {
    if Backend::real_is_built() {
        assert_reach(&play(random(2)).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "fifty fleets of each kind on real control planes (DROVER_FLEETS: another number), some minutes"]
async fn newcomers_of_hundreds_of_random_fleets_are_placed_on_real_schedulers() {
    if Backend::real_is_built() {
        let each = std::env::var("DROVER_FLEETS").ok().and_then(|each| each.parse().ok()).unwrap_or(50);
        assert_reach(&play(random(each)).await);
    }
}
