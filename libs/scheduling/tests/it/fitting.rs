//! Packing on nodes and its reasons, by the rules of the Kubernetes scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_scheduling::*;

use crate::test_fleet::{GI, demand, group, node};

fn fits(nodes: &[Node], demand: &Demand) -> Option<Vec<PodsOnNode>> {
    let free: Vec<Amounts> = nodes.iter().map(|n| n.allocatable.minus(&n.foreign)).collect();
    pack(Free { nodes, now: &free, later: &free }, &[Ask::held(demand)]).map(|mut all| all.remove(0))
}

fn why(nodes: &[Node], demand: &Demand) -> String {
    let free: Vec<Amounts> = nodes.iter().map(|n| n.allocatable.minus(&n.foreign)).collect();
    assert!(fits(nodes, demand).is_none());
    explain(Free { nodes, now: &free, later: &free }, Ask::held(demand)).reason().to_owned()
}

fn pods(name: &str, replicas: u32, cpu: i64) -> PodGroup {
    PodGroup { workload: name.into(), ..group(replicas, cpu) }
}

#[test]
fn pack_refuses_pods_that_fit_only_by_sums() {
    let nodes = [node("n1", 400), node("n2", 1200)];
    assert_eq!(why(&nodes, &demand(1, 1500)), "cpu: needs 1500m on one node, the emptiest matching has 1200m free");
    assert_eq!(why(&nodes, &demand(3, 600)), "3 pods of 600m cpu / 1Gi memory each: only 2 fit at once");
    assert!(fits(&nodes, &demand(2, 600)).is_some());
}

#[test]
fn explain_reports_resources_missing_together() {
    let mut a = node("n1", 2000);
    a.allocatable.memory = GI / 2;
    let nodes = [a, node("n2", 100)];
    assert_eq!(why(&nodes, &demand(1, 500)), "needs 500m cpu and 1Gi memory together on one node; no matching node has all of it free");
}

#[test]
fn pack_finds_packing_that_first_fit_misses() {
    // First fit begins with 4 on the first node, where then nothing else has room. Only 3+3 and 4+4 hold all.
    let nodes = [node("n1", 6), node("n2", 8)];
    let demand = Demand { groups: vec![pods("a", 2, 4), pods("b", 2, 3)], ..Demand::default() };
    let witness = fits(&nodes, &demand).expect("3+3 and 4+4");
    assert_eq!(witness.iter().map(|p| p.count).sum::<u32>(), 4);
}

#[test]
fn pack_fills_two_nodes_completely() {
    for (first, second, sizes) in [
        (10, 10, &[(1, 4), (2, 3), (2, 5)][..]),
        (12, 11, &[(1, 7), (1, 6), (2, 5)]),
        (10, 9, &[(1, 6), (1, 5), (2, 4)]),
        (10, 9, &[(3, 5), (1, 4)]),
    ] {
        let groups = sizes.iter().zip(["a", "b", "c"]).map(|((replicas, cpu), name)| pods(name, *replicas, *cpu)).collect();
        let demand = Demand { groups, ..Demand::default() };
        let witness = fits(&[node("n1", first), node("n2", second)], &demand);
        let placed = witness.map(|witness| witness.iter().map(|p| p.count).sum::<u32>());
        let wanted = sizes.iter().map(|(replicas, _)| replicas).sum::<u32>();
        assert_eq!(placed, Some(wanted), "{sizes:?} on {first} and {second}");
    }
}

#[test]
fn pack_respects_taints_selectors_affinity_and_cordons() {
    let mut tainted = node("n1", 1000);
    tainted.taints = vec![Taint { key: "gpu".into(), value: "yes".into(), effect: "NoSchedule".into() }];
    assert_eq!(
        why(&[tainted.clone()], &demand(1, 1)),
        "Deployment/main: no node admits it: taint gpu=yes:NoSchedule is not tolerated (1 node)"
    );
    let mut tolerant = demand(1, 1);
    tolerant.groups[0].tolerations = vec![Toleration { key: "gpu".into(), value: "yes".into(), ..Toleration::default() }];
    assert!(fits(&[tainted.clone()], &tolerant).is_some());
    tainted.taints[0].effect = "PreferNoSchedule".into();
    assert!(fits(&[tainted], &demand(1, 1)).is_some(), "PreferNoSchedule does not forbid");

    let mut cordoned = node("n1", 1000);
    cordoned.unschedulable = true;
    assert!(why(&[cordoned], &demand(1, 1)).contains("cordoned"));

    let mut labelled = node("n2", 1000);
    labelled.labels = Arc::new(BTreeMap::from([("zone".to_owned(), "b".to_owned()), ("cores".to_owned(), "16".to_owned())]).into());
    let nodes = [node("n1", 1000), labelled];
    let on = |change: &dyn Fn(&mut PodGroup)| {
        let mut demand = demand(1, 1);
        change(&mut demand.groups[0]);
        fits(&nodes, &demand).map(|p| p[0].node.clone())
    };
    let n2 = Some("n2".to_owned());
    assert_eq!(on(&|g| drop(g.node_selector.insert("zone".into(), "b".into()))), n2);
    assert_eq!(on(&|g| drop(g.node_selector.insert("zone".into(), "c".into()))), None);
    let need = |key: &str, operator, values: &[&str]| NodeRequirement {
        key: key.into(),
        operator,
        values: values.iter().map(|v| (*v).to_owned()).collect(),
    };
    assert_eq!(on(&|g| g.node_affinity = vec![vec![need("zone", Operator::In, &["a", "b"])]]), n2);
    assert_eq!(on(&|g| g.node_affinity = vec![vec![need("cores", Operator::Gt, &["8"])]]), n2);
    assert_eq!(on(&|g| g.node_affinity = vec![vec![need("zone", Operator::DoesNotExist, &[])]]), Some("n1".into()));
    assert_eq!(on(&|g| g.node_affinity = vec![vec![need("metadata.name", Operator::In, &["n2"])]]), n2);
    assert_eq!(
        on(&|g| g.node_affinity = vec![vec![need("zone", Operator::In, &["x"])], vec![need("zone", Operator::Exists, &[])]]),
        n2,
        "terms are or-ed"
    );
    assert_eq!(
        on(&|g| g.node_affinity = vec![vec![need("zone", Operator::Exists, &[]), need("zone", Operator::NotIn, &["b"])]]),
        None,
        "requirements are and-ed"
    );
}

#[test]
fn pack_puts_per_node_pods_on_each_matching_node() {
    let mut labelled = node("n3", 1000);
    labelled.labels = Arc::new(BTreeMap::from([("role".to_owned(), "edge".to_owned())]).into());
    let nodes = [node("n1", 1000), node("n2", 100), labelled];
    let mut demand = demand(0, 300);
    demand.groups[0].per_node = true;
    assert_eq!(why(&nodes, &demand), "cpu: Deployment/main needs 300m on every matching node, n2 has 100m free");
    demand.groups[0].node_selector = [("role".to_owned(), "edge".to_owned())].into();
    assert_eq!(fits(&nodes, &demand).unwrap(), [PodsOnNode { node: "n3".into(), group: 0, count: 1 }]);
}

#[test]
fn pack_ignores_over_commitment_of_resources_not_requested() {
    let mut full = node("n1", 1000);
    full.foreign = Amounts { memory: 100 * GI, ..Amounts::default() };
    let mut only_cpu = demand(1, 500);
    only_cpu.groups[0].requests.memory = 0;
    assert!(fits(&[full.clone()], &only_cpu).is_some());
    assert!(fits(&[full], &demand(1, 500)).is_none());
}

#[test]
fn pack_counts_extended_resources() {
    let mut gpu = node("n1", 1000);
    gpu.allocatable.extra.insert("nvidia.com/gpu".into(), 1);
    let mut demand = demand(2, 100);
    demand.groups[0].requests.extra.insert("nvidia.com/gpu".into(), 1);
    assert!(why(&[gpu.clone()], &demand).starts_with("2 pods of 100m cpu / 1Gi memory / 1 nvidia.com/gpu each: only 1"));
    demand.groups[0].replicas = 1;
    assert!(fits(&[gpu], &demand).is_some());
    assert_eq!(why(&[node("n1", 1000)], &demand), "nvidia.com/gpu: needs 1 on one node, the emptiest matching has 0 free");
}
