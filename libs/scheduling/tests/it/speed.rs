//! The sizes of the design: 100 members of 20 nodes, 1,000 candidates. Prints times and asserts only that the results are correct.

use std::time::Instant;

use drover_scheduling::*;

use crate::test_fleet::{TestFleet, any_of, app, demand, feasible, id, request};

fn fleet(apps_on_first: usize) -> TestFleet {
    let names: Vec<String> = (0..100).map(|i| format!("x+m{i:03}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut fleet = TestFleet::default();
    for (i, name) in all.iter().enumerate() {
        fleet = fleet.member(name, 1 + (i % 10) as u8, &[16_000; 20]);
    }
    for i in 0..apps_on_first {
        fleet = fleet.running(&format!("app{i:04}"), &format!("x+m000@n{}", 1 + i % 20), 300, &all);
    }
    fleet
}

#[test]
fn decisions_and_plans_are_correct_in_large_fleet() {
    let names: Vec<String> = (0..100).map(|i| format!("x+m{i:03}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut ledger = fleet(0).ledger();
    // By label, like most intents; for a list of a hundred clusters most of the time would be its copy.
    let mut web = app("web", demand(3, 100), any_of(&all));
    let label = Element { cluster_provider: Some("x".into()), cluster_label: Some("all".into()), ..Element::default() };
    web.terms.intent.any_of = vec![label];
    for name in &all {
        let member = ledger.room(&crate::test_fleet::key(name)).and_then(|room| room.member.clone()).expect("a member of the fleet");
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

    let fleet = fleet(1000);
    let ledger = fleet.ledger();
    let newcomer = fleet.newcomer(vec![app("new", demand(20, 8_000), any_of(&["x+m000"]))]);
    let start = Instant::now();
    let plan = feasible(plan(&ledger, &newcomer));
    println!("plan with {} moves out of {} candidates in {:?}", plan.waves[0].len(), plan.candidates.len(), start.elapsed());
    assert!(plan.waves[0].len() >= 20);
}
