//! Who has to move looks at its calls, and a newcomer whose apps call each other is planned group by group.

use std::collections::BTreeMap;

use drover_scheduling::*;

use crate::calling::{calling, terms};
use crate::world::{World, any_of, app, demand, dig, feasible, id, key, moves};

/// All of these apps are of one group of apps, `shop`.
fn one_shop(mut world: World, apps: &[&str]) -> World {
    for app in apps {
        world = world.change_claim(app, |claim| claim.dig = dig("shop").into());
        world.movability.iter_mut().filter(|word| word.app == *app).for_each(|word| word.dig = id("shop"));
    }
    world
}

/// The private cloud is full of a cart; its web part runs on `web_at`, where there is less room than elsewhere.
fn cart_must_go(web_at: &str, priority_d: u8) -> World {
    let on = ["own+a", "aws+c", "aws+d"];
    let world = World::default().member("own+a", 1, &[1000]).member("aws+c", 5, &[4000]).member("aws+d", priority_d, &[3000]);
    let cart = calling(app("cart", demand(1, 800), any_of(&on)), &[]);
    let web = calling(app("web", demand(1, 500), any_of(&[web_at])), &[("cart", 10)]);
    one_shop(world.running_as(cart, "own+a").running_as(web, web_at), &["cart", "web"])
}

fn ledger_app() -> Vec<AppRequest> {
    vec![app("ledger", demand(1, 900), any_of(&["own+a"]))]
}

#[test]
fn who_moves_goes_to_those_it_calls_among_equally_preferred_homes() {
    let plan = feasible(cart_must_go("aws+d", 5).plan(ledger_app()));
    assert_eq!(moves(&plan), ["cart>aws+d"]);
    assert!(plan.waves[0][0].reason.contains("100 % of its calls stay"), "{}", plan.waves[0][0].reason);
    assert_eq!(plan.waves[0][0].alternatives, [key("aws+c")]);
    // Of another group the same names are nobody it knows: most room decides, as it does without calls.
    let strangers = cart_must_go("aws+d", 5).change_claim("web", |claim| claim.dig = dig("other").into());
    assert_eq!(moves(&feasible(strangers.plan(ledger_app()))), ["cart>aws+c"]);
    // A better provider is better whoever is there.
    assert_eq!(moves(&feasible(cart_must_go("aws+d", 6).plan(ledger_app()))), ["cart>aws+c"]);
}

#[test]
fn who_moves_goes_nearer_to_those_it_calls() {
    // Whom it calls stays on a fourth cluster, where there is no more room; d is near to it, c is far.
    let latency = |to: &str, us| Latency { from: key("own+b"), to: key(to), us };
    let world = |us: [u32; 2]| {
        let mut world = cart_must_go("own+b", 5);
        for app in ["cart", "web"] {
            let latencies = vec![latency("aws+c", us[0]), latency("aws+d", us[1])];
            world = world.change_request(app, |request| request.terms.calls.as_mut().unwrap().latencies = latencies.clone());
        }
        world.member("own+b", 1, &[500])
    };
    assert_eq!(moves(&feasible(world([90_000, 1_000]).plan(ledger_app()))), ["cart>aws+d"]);
    assert_eq!(moves(&feasible(world([1_000, 90_000]).plan(ledger_app()))), ["cart>aws+c"]);
}

#[test]
fn those_who_leave_together_stay_together() {
    let pair = |calls: &[(&str, u64)]| {
        let on = ["x+a", "x+b", "x+c"];
        let world = World::default().member("x+a", 1, &[2000]).member("x+b", 1, &[2000]).member("x+c", 1, &[2000]);
        let cart = calling(app("cart", demand(1, 500), any_of(&on)), &[]);
        let web = calling(app("web", demand(1, 500), any_of(&on)), calls);
        one_shop(world.running_as(cart, "x+a").running_as(web, "x+a"), &["cart", "web"])
    };
    assert_eq!(moves(&feasible(pair(&[("cart", 1)]).drain("x+a"))), ["cart>x+b", "web>x+b"]);
    assert_eq!(moves(&feasible(pair(&[]).drain("x+a"))), ["cart>x+b", "web>x+c"]);
}

/// Where each app of the newcomer goes.
fn homes(plan: &Plan) -> BTreeMap<&str, &str> {
    plan.newcomer.iter().map(|app| (app.app.as_str(), app.groups[0].placement.as_ref().unwrap().member.0.as_str())).collect()
}

/// Two full clusters of one provider, each with so many apps that may go to a third.
fn two_full(each: usize) -> World {
    let mut world = World::default().member("x+a", 1, &[5000]).member("x+b", 1, &[5000]).member("y+z", 9, &[64_000]);
    for (member, n) in ["x+a", "x+b"].into_iter().flat_map(|member| (0..each).map(move |n| (member, n))) {
        world = world.running(&format!("old-{}-{n}", &member[2..]), member, 5000 / each as i64, &["x+a", "x+b", "y+z"]);
    }
    world
}

#[test]
fn room_is_made_where_the_newcomer_s_own_apps_run() {
    let web = calling(app("web", demand(1, 100), any_of(&["x+b"])), &[("cart", 3)]);
    let world =
        two_full(5).member("x+b", 1, &[5100]).running_as(web, "x+b").change_claim("web", |claim| claim.dig = dig("newcomer").into());
    let cart = |calls: bool| {
        let cart = app("cart", demand(1, 700), any_of(&["x+a", "x+b"]));
        vec![if calls { calling(cart, &[]) } else { cart }]
    };
    let plan = feasible(world.plan(cart(true)));
    assert_eq!((homes(&plan)["cart"], moves(&plan).len()), ("x+b", 1));
}

#[test]
fn a_newcomer_of_many_apps_is_planned_group_by_group() {
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
    // Ten of 900 on two of 5000: five on each, so one pair is apart in the best case.
    let plan = feasible(two_full(5).plan(apps.clone()));
    assert!(apart(&plan) <= 1, "{:?}", homes(&plan));
    // With room for six on each, nobody is.
    let plan = feasible(two_full(5).member("x+a", 1, &[5400]).member("x+b", 1, &[5400]).plan(apps));
    assert_eq!(apart(&plan), 0, "{:?}", homes(&plan));
}

#[test]
fn a_group_that_is_to_stay_together_makes_room_at_the_next_provider() {
    // Room for one can be made on the private cloud, room for both on the public one.
    let world = World::default().member("own+a", 1, &[1000]).member("aws+c", 5, &[1400]).member("zoo+e", 9, &[4000]);
    let world = world.running("small", "own+a", 700, &["own+a", "zoo+e"]).running("large", "aws+c", 1400, &["aws+c", "zoo+e"]);
    let pair = |keep: bool| -> Vec<AppRequest> {
        let of = |name: &str| app(name, demand(1, 700), any_of(&["own+a", "aws+c"]));
        let pair = [calling(of("shop"), &[("cart", 10)]), calling(of("cart"), &[])];
        pair.into_iter().map(|a| terms(a, |calls| calls.keep_together = keep)).collect()
    };
    assert_eq!(homes(&feasible(world.plan(pair(false)))), BTreeMap::from([("cart", "own+a"), ("shop", "aws+c")]));
    assert_eq!(homes(&feasible(world.plan(pair(true)))), BTreeMap::from([("cart", "aws+c"), ("shop", "aws+c")]));
}
