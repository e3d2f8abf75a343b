//! Plans for apps that call each other: calls influence destinations, and a newcomer is planned group by group.

use std::collections::BTreeMap;

use drover_scheduling::*;

use crate::calling::{calling, terms};
use crate::test_fleet::{TestFleet, any_of, app, demand, dig, feasible, id, key, moves};

/// Puts these apps into one deployment intent group, `shop`.
fn one_shop(mut fleet: TestFleet, apps: &[&str]) -> TestFleet {
    for app in apps {
        fleet = fleet.change_claim(app, |claim| claim.dig = dig("shop").into());
        fleet.movability.iter_mut().filter(|word| word.app == *app).for_each(|word| word.dig = id("shop"));
    }
    fleet
}

/// A cart fills the private cloud; its web part runs on `web_at`, which has less room than the other clusters.
fn cart_must_go(web_at: &str, priority_d: u8) -> TestFleet {
    let on = ["own+a", "aws+c", "aws+d"];
    let fleet = TestFleet::default().member("own+a", 1, &[1000]).member("aws+c", 5, &[4000]).member("aws+d", priority_d, &[3000]);
    let cart = calling(app("cart", demand(1, 800), any_of(&on)), &[]);
    let web = calling(app("web", demand(1, 500), any_of(&[web_at])), &[("cart", 10)]);
    one_shop(fleet.running_as(cart, "own+a").running_as(web, web_at), &["cart", "web"])
}

fn ledger_app() -> Vec<AppRequest> {
    vec![app("ledger", demand(1, 900), any_of(&["own+a"]))]
}

#[test]
fn victim_goes_to_member_of_apps_it_calls_among_equal_priorities() {
    let plan = feasible(cart_must_go("aws+d", 5).plan(ledger_app()));
    assert_eq!(moves(&plan), ["cart>aws+d"]);
    assert!(plan.waves[0][0].reason.contains("100 % of its calls stay"), "{}", plan.waves[0][0].reason);
    assert_eq!(plan.waves[0][0].alternatives, [key("aws+c")]);
    // Apps with the same names in another group have no calls to it, so the most room decides.
    let strangers = cart_must_go("aws+d", 5).change_claim("web", |claim| claim.dig = dig("other").into());
    assert_eq!(moves(&feasible(strangers.plan(ledger_app()))), ["cart>aws+c"]);
    // Provider priority precedes calls.
    assert_eq!(moves(&feasible(cart_must_go("aws+d", 6).plan(ledger_app()))), ["cart>aws+c"]);
}

#[test]
fn victim_goes_to_member_with_lower_latency_to_apps_it_calls() {
    // The called app stays on a fourth cluster without room; d is near to it, c is far.
    let latency = |to: &str, us| Latency { from: key("own+b"), to: key(to), us };
    let fleet = |us: [u32; 2]| {
        let mut fleet = cart_must_go("own+b", 5);
        for app in ["cart", "web"] {
            let latencies = vec![latency("aws+c", us[0]), latency("aws+d", us[1])];
            fleet = fleet.change_request(app, |request| request.terms.calls.as_mut().unwrap().latencies = latencies.clone());
        }
        fleet.member("own+b", 1, &[500])
    };
    assert_eq!(moves(&feasible(fleet([90_000, 1_000]).plan(ledger_app()))), ["cart>aws+d"]);
    assert_eq!(moves(&feasible(fleet([1_000, 90_000]).plan(ledger_app()))), ["cart>aws+c"]);
}

#[test]
fn drain_keeps_apps_that_call_each_other_together() {
    let pair = |calls: &[(&str, u64)]| {
        let on = ["x+a", "x+b", "x+c"];
        let fleet = TestFleet::default().member("x+a", 1, &[2000]).member("x+b", 1, &[2000]).member("x+c", 1, &[2000]);
        let cart = calling(app("cart", demand(1, 500), any_of(&on)), &[]);
        let web = calling(app("web", demand(1, 500), any_of(&on)), calls);
        one_shop(fleet.running_as(cart, "x+a").running_as(web, "x+a"), &["cart", "web"])
    };
    assert_eq!(moves(&feasible(pair(&[("cart", 1)]).drain("x+a"))), ["cart>x+b", "web>x+b"]);
    assert_eq!(moves(&feasible(pair(&[]).drain("x+a"))), ["cart>x+b", "web>x+c"]);
}

/// The member of each app of the newcomer.
fn homes(plan: &Plan) -> BTreeMap<&str, &str> {
    plan.newcomer.iter().map(|app| (app.app.as_str(), app.groups[0].placement.as_ref().unwrap().member.0.as_str())).collect()
}

/// Two full clusters of one provider, each with `each` apps that may move to a third.
fn two_full(each: usize) -> TestFleet {
    let mut fleet = TestFleet::default().member("x+a", 1, &[5000]).member("x+b", 1, &[5000]).member("y+z", 9, &[64_000]);
    for (member, n) in ["x+a", "x+b"].into_iter().flat_map(|member| (0..each).map(move |n| (member, n))) {
        fleet = fleet.running(&format!("old-{}-{n}", &member[2..]), member, 5000 / each as i64, &["x+a", "x+b", "y+z"]);
    }
    fleet
}

#[test]
fn newcomer_gets_room_where_its_running_apps_are() {
    let web = calling(app("web", demand(1, 100), any_of(&["x+b"])), &[("cart", 3)]);
    let fleet =
        two_full(5).member("x+b", 1, &[5100]).running_as(web, "x+b").change_claim("web", |claim| claim.dig = dig("newcomer").into());
    let cart = |calls: bool| {
        let cart = app("cart", demand(1, 700), any_of(&["x+a", "x+b"]));
        vec![if calls { calling(cart, &[]) } else { cart }]
    };
    let plan = feasible(fleet.plan(cart(true)));
    assert_eq!((homes(&plan)["cart"], moves(&plan).len()), ("x+b", 1));
}

#[test]
fn newcomer_of_many_apps_is_planned_by_groups() {
    // Five pairs; neither cluster has room for more than five apps.
    let apps: Vec<AppRequest> = (0..5)
        .flat_map(|n| {
            let of = |name: &str| app(&format!("{name}{n}"), demand(1, 900), any_of(&["x+a", "x+b"]));
            [calling(of("web"), &[(&format!("cart{n}"), 10)]), calling(of("cart"), &[])]
        })
        .collect();
    let apart = |plan: &Plan| {
        let homes = homes(plan);
        (0..5).filter(|n| homes[format!("web{n}").as_str()] != homes[format!("cart{n}").as_str()]).count()
    };
    // Ten apps of 900 on two clusters of 5000: five on each, so that at least one pair is split.
    let plan = feasible(two_full(5).plan(apps.clone()));
    assert!(apart(&plan) <= 1, "{:?}", homes(&plan));
    // With room for six on each, no pair is split.
    let plan = feasible(two_full(5).member("x+a", 1, &[5400]).member("x+b", 1, &[5400]).plan(apps));
    assert_eq!(apart(&plan), 0, "{:?}", homes(&plan));
}

#[test]
fn keep_together_makes_room_at_next_provider() {
    // Room for one can be made on the private cloud, room for both on the public one.
    let fleet = TestFleet::default().member("own+a", 1, &[1000]).member("aws+c", 5, &[1400]).member("zoo+e", 9, &[4000]);
    let fleet = fleet.running("small", "own+a", 700, &["own+a", "zoo+e"]).running("large", "aws+c", 1400, &["aws+c", "zoo+e"]);
    let pair = |keep: bool| -> Vec<AppRequest> {
        let of = |name: &str| app(name, demand(1, 700), any_of(&["own+a", "aws+c"]));
        let pair = [calling(of("shop"), &[("cart", 10)]), calling(of("cart"), &[])];
        pair.into_iter().map(|a| terms(a, |calls| calls.keep_together = keep)).collect()
    };
    assert_eq!(homes(&feasible(fleet.plan(pair(false)))), BTreeMap::from([("cart", "own+a"), ("shop", "aws+c")]));
    assert_eq!(homes(&feasible(fleet.plan(pair(true)))), BTreeMap::from([("cart", "aws+c"), ("shop", "aws+c")]));
}
