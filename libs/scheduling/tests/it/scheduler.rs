//! Plans on the Kubernetes scheduler, which does not know the packing of a plan: which plans hold, and which are preferred.

use std::collections::BTreeMap;

use drover_scheduling::*;

use crate::test_fleet::{GI, TestFleet, any_of, app, demand, feasible, group, id, key, moves};

/// `x+a` is filled by v1 (700m) and v2 (900m). `y+b` has nodes of 1000m and 800m: it has room for both only if v2 gets the large node.
fn tight() -> TestFleet {
    TestFleet::default().member("x+a", 1, &[1600]).member("y+b", 2, &[1000, 800])
}

fn both(fleet: TestFleet, allowed: &[&str]) -> Plan {
    let fleet = fleet.running("v1", "x+a", 700, allowed).running("v2", "x+a", 900, allowed);
    feasible(fleet.plan(vec![app("new", demand(1, 1600), any_of(&["x+a"]))]))
}

fn scheduling(plan: &Plan) -> &PlanScheduling {
    plan.scheduling.as_ref().expect("every new plan says it")
}

#[test]
fn plan_prefers_destinations_that_hold_in_any_order() {
    let plan = both(tight().member("z+c", 5, &[2000]), &["x+a", "y+b", "z+c"]);
    assert_eq!(moves(&plan), ["v1>y+b", "v2>z+c"], "v1 and v2 together on y+b would depend on the scheduler");
    assert_eq!(scheduling(&plan), &PlanScheduling { holds: Holds::Any, ..PlanScheduling::default() });
}

#[test]
fn plan_that_holds_in_one_order_says_which() {
    let plan = both(tight(), &["x+a", "y+b"]);
    assert_eq!(moves(&plan), ["v1>y+b", "v2>y+b"]);
    let told = scheduling(&plan);
    assert_eq!((told.holds, &told.order), (Holds::One, &vec![id("v2"), id("v1")]), "v1 alone would be put on the large node");
    assert_eq!(told.reasons[0].member, key("y+b"));
    assert!(told.reasons[0].reason.ends_with("in this order: v2, v1"), "{told:#?}");
}

#[test]
fn plan_is_likely_if_the_default_scheduler_places_all_pods_in_order_of_application() {
    // v1 goes to the emptier node n1 of 800m, also if it comes first, so n2 stays free for v2, which fits nowhere else.
    let old = PodGroup { requests: Amounts::pod(3100, 48 * GI), ..group(1, 0) };
    let old = app("old", Demand { groups: vec![old], ..Demand::default() }, any_of(&["y+b"]));
    let fleet = TestFleet::default().member("x+a", 1, &[1450]).member("y+b", 2, &[800, 4000]).running_as(old, "y+b@n2");
    let fleet = fleet.running("v1", "x+a", 600, &["x+a", "y+b"]).running("v2", "x+a", 850, &["x+a", "y+b"]);
    let plan = feasible(fleet.plan(vec![app("new", demand(1, 1450), any_of(&["x+a"]))]));
    let told = scheduling(&plan);
    assert_eq!((told.holds, told.order.len(), told.reasons.len()), (Holds::Likely, 0, 1), "{told:#?}");
}

#[test]
fn plan_asks_for_its_own_order_if_another_one_does_not_do() {
    let fleet = tight().running("v1", "x+a", 900, &["x+a", "y+b"]).running("v2", "x+a", 700, &["x+a", "y+b"]);
    let plan = feasible(fleet.plan(vec![app("new", demand(1, 1600), any_of(&["x+a"]))]));
    let told = scheduling(&plan);
    assert_eq!((told.holds, &told.order), (Holds::Likely, &vec![id("v1"), id("v2")]), "v2 alone would be put on the large node");
}

#[test]
fn scheduler_keeps_the_pods_of_one_workload_apart() {
    // Both pods of v1 fit on n1, and by the free shares alone both would go there; then v2 fits on n2. The scheduler puts one on each.
    let nodes: Vec<Node> = [("n1", 4000), ("n2", 1000)].map(|(name, cpu)| labelled(name, cpu)).into();
    let free: Vec<Amounts> = nodes.iter().map(|node| node.allocatable.clone()).collect();
    let large = Demand {
        groups: vec![PodGroup { node_selector: BTreeMap::from([("name".into(), "n2".into())]), ..group(1, 900) }],
        ..Demand::default()
    };
    assert_eq!(outlook(&nodes, free.clone(), &[&demand(2, 400), &large]), (Holds::One, Some(vec![1, 0])));
    let apart = |kind: &str| {
        let mut pods = demand(2, 400);
        pods.groups[0].workload = format!("{kind}/main");
        pods
    };
    assert_eq!(outlook(&nodes, free, &[&apart("Job"), &large]).0, Holds::Likely, "the scheduler knows no controller for pods of a Job");
}

fn labelled(name: &str, cpu: i64) -> Node {
    let labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.to_owned()), ("name".to_owned(), name.to_owned())]);
    let allocatable = Amounts { cpu, memory: 64 * GI, pods: 110, ..Amounts::default() };
    Node { name: name.into(), allocatable, labels: std::sync::Arc::new(labels.into()), ..Node::default() }
}

/// `first` is on its way to `y+b`, where the ledger assumes it on the small node; `v1` may follow it there or, if `also` is given, go there.
fn behind_another(also: &[&str]) -> (TestFleet, PlanRequest) {
    let mut fleet = tight();
    for name in also {
        fleet = fleet.member(name, 5, &[2000]);
    }
    let allowed: Vec<&str> = ["x+a", "y+b"].iter().chain(also).copied().collect();
    let fleet = fleet.running("first", "y+b@n2", 700, &["y+b"]).running("v1", "x+a", 900, &allowed);
    let excluded = BTreeMap::from([(id("first"), "another operation changes it".to_owned())]);
    let request = PlanRequest { excluded, ..fleet.newcomer(vec![app("new", demand(1, 1600), any_of(&["x+a"]))]) };
    (fleet, request)
}

#[test]
fn plan_knows_that_pods_of_other_operations_have_no_nodes_yet() {
    let (fleet, request) = behind_another(&[]);
    let plan_of = |fleet: &TestFleet| feasible(plan(&fleet.ledger(), &request));
    let unsure = plan_of(&fleet);
    let told = scheduling(&unsure);
    assert_eq!((told.holds, &told.starting), (Holds::One, &vec![key("y+b")]), "the scheduler may put it on the large node");
    assert!(told.reasons[0].reason.ends_with("of first"), "{told:#?}");
    let on = |node: &str| {
        let requests = ByNode::from(BTreeMap::from([(node.to_owned(), Amounts::pod(700, GI))]));
        fleet.clone().observed("first", Observed { requests, ..Observed::default() })
    };
    assert_eq!(scheduling(&plan_of(&on("n2"))), &PlanScheduling { holds: Holds::Any, ..PlanScheduling::default() });
    assert!(matches!(plan(&on("n1").ledger(), &request), PlanResult::Infeasible(_)), "the large node is taken");
}

#[test]
fn plan_prefers_a_destination_where_no_pods_are_starting() {
    let (fleet, request) = behind_another(&["z+c"]);
    let plan = feasible(plan(&fleet.ledger(), &request));
    assert_eq!((moves(&plan), scheduling(&plan).holds), (vec!["v1>z+c".to_owned()], Holds::Any));
}

#[test]
fn drain_prefers_destinations_that_hold_in_any_order() {
    let allowed = ["x+a", "y+b", "z+c"];
    let fleet = tight().member("z+c", 5, &[2000]).running("v1", "x+a", 700, &allowed).running("v2", "x+a", 900, &allowed);
    let plan = feasible(fleet.drain("x+a"));
    assert_eq!((moves(&plan).len(), scheduling(&plan).holds), (2, Holds::Any), "{:?}", moves(&plan));
}

#[test]
fn newcomer_pods_of_different_sizes_are_part_of_the_outlook() {
    let fleet = TestFleet::default().member("y+b", 2, &[1000, 800]);
    let new = |sizes: [i64; 2]| {
        let apps = sizes.iter().enumerate().map(|(i, cpu)| app(&format!("new{i}"), demand(1, *cpu), any_of(&["y+b"]))).collect();
        feasible(fleet.plan(apps))
    };
    let told = new([700, 900]).scheduling.expect("every new plan says it");
    assert_eq!((told.holds, told.newcomer_order), (Holds::One, vec!["new1".to_owned(), "new0".to_owned()]));
    assert_eq!(scheduling(&new([300, 400])).holds, Holds::Any, "each node has room for both");
    assert_eq!(scheduling(&new([700, 700])).holds, Holds::Any, "equal pods fill nodes in any order");
}

#[test]
fn older_plan_without_outlook_is_read() {
    let plan = both(tight(), &["x+a", "y+b"]);
    let mut json = serde_json::to_value(&plan).unwrap();
    json.as_object_mut().unwrap().remove("scheduling");
    assert_eq!(serde_json::from_value::<Plan>(json).unwrap(), Plan { scheduling: None, ..plan });
}
