//! Plans on the Kubernetes scheduler, which does not know the packing of a plan: which plans hold, and which are preferred.

use drover_scheduling::*;

use crate::test_fleet::{TestFleet, any_of, app, demand, feasible, id, key, moves};

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
    // v1 comes first and goes to the emptier node n1 of 800m, so n2 stays free for v2, which fits nowhere else.
    let fleet = TestFleet::default().member("x+a", 1, &[1450]).member("y+b", 2, &[800, 4000]).running("old", "y+b@n2", 3100, &["y+b"]);
    let fleet = fleet.running("v1", "x+a", 600, &["x+a", "y+b"]).running("v2", "x+a", 850, &["x+a", "y+b"]);
    let plan = feasible(fleet.plan(vec![app("new", demand(1, 1450), any_of(&["x+a"]))]));
    let told = scheduling(&plan);
    assert_eq!((told.holds, told.order.len(), told.reasons.len()), (Holds::Likely, 0, 1), "{told:#?}");
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
