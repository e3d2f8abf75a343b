//! The sizes of the design: 100 members of 20 nodes, 1,000 candidates. Prints times; asserts only that answers are right.

use std::time::Instant;

use drover_scheduling::*;

use crate::world::{World, any_of, app, demand, feasible, id, request};

fn fleet(apps_on_first: usize) -> World {
    let names: Vec<String> = (0..100).map(|i| format!("x+m{i:03}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::default();
    for (i, name) in all.iter().enumerate() {
        world = world.member(name, 1 + (i % 10) as u8, &[16_000; 20]);
    }
    for i in 0..apps_on_first {
        world = world.running(&format!("app{i:04}"), &format!("x+m000@n{}", 1 + i % 20), 300, &all);
    }
    world
}

#[test]
fn ten_thousand_decisions_a_second_and_plans_in_milliseconds() {
    let names: Vec<String> = (0..100).map(|i| format!("x+m{i:03}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut ledger = fleet(0).ledger();
    // By label, as most intents are; a list of a hundred clusters costs mostly its own copy.
    let mut web = app("web", demand(3, 100), any_of(&all));
    let label = Element { cluster_provider: Some("x".into()), cluster_label: Some("all".into()), ..Element::default() };
    web.terms.intent.any_of = vec![label];
    for name in &all {
        let member = ledger.room(&crate::world::key(name)).and_then(|room| room.member.clone()).expect("a member of the fleet");
        ledger.set_member(FleetMember { labels: vec!["all".into()], ..member });
    }
    let request = request(vec![web]);
    let start = Instant::now();
    let rounds = 2_000;
    for i in 0..rounds {
        let decision = ledger.decide(id(&format!("d{i}")), &request);
        assert_eq!(decision.outcome, Outcome::Placed);
        ledger.apply_decision(&request, &decision).keep();
    }
    println!("{:.0} decisions/s of 3 replicas over 100 members of 20 nodes", f64::from(rounds) / start.elapsed().as_secs_f64());

    let world = fleet(1000);
    let ledger = world.ledger();
    let newcomer = world.newcomer(vec![app("new", demand(20, 8_000), any_of(&["x+m000"]))]);
    let start = Instant::now();
    let plan = feasible(plan(&ledger, &newcomer));
    println!("plan with {} moves out of {} candidates in {:?}", plan.waves[0].len(), plan.candidates.len(), start.elapsed());
    assert!(plan.waves[0].len() >= 20);
}
