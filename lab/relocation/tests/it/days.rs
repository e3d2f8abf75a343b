//! Days on a fleet with prices.

use drover_lab_relocation::experiment::days_arms;
use drover_lab_relocation::{Days, DaysPolicy, HEADER, Market, NODE, Trace, days};

fn run(trace: &Trace, market: &Market, name: &str) -> Days {
    let arm = days_arms().into_iter().find(|arm| arm.name == name).unwrap();
    days(trace, market, &arm.policy, &|| 0.0, &|| {})
}

/// Applications that fill members as told: a line of a trace each.
fn trace(lines: &[String]) -> Trace {
    Trace::parse(&format!("{HEADER}\n{}\n", lines.join("\n"))).unwrap()
}

#[test]
fn every_policy_keeps_its_word_on_a_drawn_trace() {
    let market = Market::new(10);
    let trace = Trace::draw(7, 1.5, 100, market.millicores(), market.zones());
    let all: Vec<(&str, DaysPolicy, Days)> =
        days_arms().into_iter().map(|arm| (arm.name, arm.policy.clone(), days(&trace, &market, &arm.policy, &|| 0.0, &|| {}))).collect();
    let of = |name: &str| &all.iter().find(|(one, ..)| *one == name).unwrap().2;
    for (name, policy, result) in &all {
        assert_eq!(result.arrived, trace.apps.len());
        assert!(result.least <= result.cost * (1.0 + 1e-9) && result.least > 0.0, "{name}: {} {}", result.least, result.cost);
        assert_eq!(result.killed > 0, matches!(policy, DaysPolicy::Preemption), "{name}");
        assert_eq!(result.moves > 0, matches!(policy, DaysPolicy::Drover { .. }), "{name}");
    }
    assert!(of("never").rejected > of("drover").rejected, "{} {}", of("never").rejected, of("drover").rejected);
    // Those that stop nothing that runs; killing makes room for more arrivals.
    assert!(all.iter().filter(|(_, _, result)| result.killed == 0).all(|(_, _, result)| result.rejected >= of("pooled").rejected));
    assert!(of("preemption").lost > 0.0);
}

#[test]
fn core_hours_are_those_of_the_applications_that_ran() {
    let market = Market::new(1_000);
    let trace = Trace::draw(3, 0.5, 1, market.millicores(), market.zones());
    let result = run(&trace, &market, "never");
    let hours: f64 = trace.apps.iter().map(|app| app.millicores() as f64 * (app.departs.min(trace.ends) - app.arrives) / 3.6e6).sum();
    assert_eq!(result.rejected, 0);
    assert!((result.core_hours - hours).abs() < 1e-6 * hours, "{} {hours}", result.core_hours);
}

#[test]
fn newcomer_moves_kills_or_is_rejected_by_policy() {
    // Members 0 (own, zone-1) and 1 (cloud-a, zone-1) of a market of two. The first application fills the own one but for a core, and may run anywhere.
    let market = Market::new(2);
    let pods = NODE.0 / 1_000 - 1;
    let trace = trace(&[format!("0,7200,{pods},1000,1,all,true,1,50"), format!("3600,7200,{pods},1000,1,private,true,9,50")]);
    let never = run(&trace, &market, "never");
    assert_eq!((never.rejected, never.moves, never.killed), (1, 0, 0));
    let drover = run(&trace, &market, "drover");
    assert_eq!((drover.rejected, drover.moves, drover.killed), (0, 1, 0));
    let preemption = run(&trace, &market, "preemption");
    assert_eq!((preemption.rejected, preemption.moves, preemption.killed), (0, 0, 1));
    // It waits from 3600 s to the end at 7200 s.
    assert!((preemption.lost - 15.0).abs() < 1e-9, "{}", preemption.lost);
    let hindsight = run(&trace, &market, "hindsight");
    assert_eq!((hindsight.rejected, hindsight.moves), (0, 0));
    // One hour of 15 cores at 1.0 and then one at 1.0 and 2.5.
    let expected = 15.0 * (1.0 + 3.5);
    assert!((drover.cost - expected).abs() < 1e-9, "{} {expected}", drover.cost);
}

#[test]
fn killed_application_starts_again_when_there_is_room() {
    let market = Market::new(1);
    let pods = NODE.0 / 1_000;
    let trace = trace(&[
        format!("0,9000,{pods},1000,1,all,false,1,50"),
        format!("1800,3600,{pods},1000,1,all,false,9,50"),
        "7200,7300,1,1,1,zone-9,false,1,50".to_owned(),
    ]);
    let result = run(&trace, &market, "preemption");
    assert_eq!((result.killed, result.rejected), (1, 1), "the last one has no member");
    assert!((result.lost - 8.0).abs() < 1e-9 && (result.core_hours - 40.0).abs() < 1e-9, "{} {}", result.lost, result.core_hours);
}
