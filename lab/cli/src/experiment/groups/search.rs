//! Runs the baselines, the search and the exact solver on every instance.

use std::sync::Arc;

use drover_lab_groups::experiment::{BenchmarkCase, MeasuredPlacement, TIGHT_AT_MOST, large, scales, tight, uniform};
use drover_lab_groups::{Aco, Exact, Greedy, Placed, Policy, Search, SearchBudget, Setting, Weights};
use drover_report::{Chart, Check};

use super::{Collected, GroupsArgs, cpu};

/// Targets: case, CPU seconds, highest allowed objective (NaN: measured without a target).
const REACH: [(&str, f64, f64); 9] = [
    ("x1", 0.1, 0.07013),
    ("x3", 0.1, 0.0775),
    ("x9", 0.01, 0.045),
    ("x9", 0.1, 0.033),
    ("x9", 1.0, f64::NAN),
    ("x9", 10.0, 0.027),
    ("big 1000", 1.0, 0.050),
    ("big 1000", 10.0, 0.042),
    ("big 1000", 60.0, 0.036),
];

/// Runs all policies that are not learned.
pub fn run(args: &GroupsArgs, collected: &mut Collected) {
    let seed = args.common.seed;
    for case in scales(Setting::default()) {
        baselines(&case, seed, collected);
        budgets(&case, seed, collected);
    }
    optimum(seed, collected);
    for case in uniform() {
        baselines(&case, seed, collected);
        let rigid = by(&case, "cgs-greedy", None, collected, &|| Greedy::Groups.place(&case.instance, &Weights::default()));
        let free = timed(&case, 1.0, seed, collected);
        let broken = free.group_reports(&case.instance).iter().filter(|s| s.places.len() > 1).count();
        let name = format!("{}: groups may be broken where that pays", case.name);
        let got = format!("{broken} of {} broken, f {:.4} against {:.4}", case.instance.groups().len(), free.value, rigid.value);
        collected.report.checks.push(Check::holds(
            name,
            "some broken, and better than whole groups",
            got,
            broken > 0 && free.value < rigid.value,
        ));
    }
    for case in tight() {
        baselines(&case, seed, collected);
        let placed = timed(&case, 1.0, seed, collected);
        let n = (placed.at.len() - placed.unplaced.len()) as f64;
        let (most, why) = match case.name {
            "tight 1.6" => (TIGHT_AT_MOST as f64, "as many containers as a linear program proves possible"),
            _ => (placed.at.len() as f64, "all containers are placed by cgs-search"),
        };
        collected.report.checks.push(Check::at_least(format!("{}: {why}", case.name), most, n, "of 117"));
    }
    if !args.no_large {
        for case in large() {
            baselines(&case, seed, collected);
            if case.name == "big 100" {
                timed(&case, 1.0, seed, collected);
                timed(&case, 10.0, seed, collected);
            }
            budgets(&case, seed, collected);
        }
    }
    gaps(collected);
}

/// Policies that take no budget; ACO where it takes less than a minute.
fn baselines(case: &BenchmarkCase, seed: u64, collected: &mut Collected) {
    let weights = Weights::default();
    for policy in [Greedy::Spread, Greedy::Binpack, Greedy::Balanced, Greedy::Affinity, Greedy::GroupsSpread, Greedy::Groups] {
        if policy != Greedy::Groups || !case.name.contains("uniform") {
            by(case, &policy.name(), None, collected, &|| policy.place(&case.instance, &weights));
        }
    }
    if case.instance.containers().len() < 500 {
        for grouped in [false, true] {
            let policy = Aco { grouped, seed };
            by(case, &policy.name(), Some(seed), collected, &|| policy.place(&case.instance, &weights));
        }
    }
}

fn by(case: &BenchmarkCase, policy: &str, seed: Option<u64>, collected: &mut Collected, place: &dyn Fn() -> Placed) -> Placed {
    collected.say(format!("{}: {policy}", case.name));
    let began = cpu();
    let placed = place();
    let row = MeasuredPlacement::of(case.name, policy, seed, &case.instance, &placed, cpu() - began);
    collected.add(case, row);
    placed
}

fn timed(case: &BenchmarkCase, seconds: f64, seed: u64, collected: &mut Collected) -> Placed {
    let search = Search { seed, budget: SearchBudget::Seconds(seconds, Arc::new(cpu)), grouped: true };
    by(case, &format!("cgs-search {seconds} s"), Some(seed), collected, &|| search.place(&case.instance, &Weights::default()))
}

/// The search after each time that a check names.
fn budgets(case: &BenchmarkCase, seed: u64, collected: &mut Collected) {
    let mut points = Vec::new();
    for (_, seconds, reach) in REACH.into_iter().filter(|(name, ..)| *name == case.name) {
        let placed = timed(case, seconds, seed, collected);
        points.push((seconds.log10(), placed.value));
        if !reach.is_nan() {
            let name = format!("{}: cgs-search after {seconds} s of CPU", case.name);
            // The proven optimum is known to five decimal places.
            collected.report.checks.push(Check::holds(
                name,
                format!("f at most {reach:.5}"),
                format!("{:.5}, {} unplaced", placed.value, placed.unplaced.len()),
                placed.value <= reach + 5e-6 && placed.unplaced.is_empty(),
            ));
        }
    }
    if points.len() > 1 {
        let name = format!("search-{}", case.name.replace(' ', "-"));
        let title = format!("cgs-search on {}", case.name);
        collected.report.charts.push(Chart::lines(name, title, "CPU time [log10 s]", "objective f").series("cgs-search", points));
    }
}

/// Proves the optimum of case x1 by branch and bound.
fn optimum(seed: u64, collected: &mut Collected) {
    let Some(case) = scales(Setting::default()).into_iter().next() else { return };
    collected.say("x1: exact");
    let began = cpu();
    let proof = Exact::default().prove(&case.instance, &Weights::default());
    let row = MeasuredPlacement::of(case.name, "exact", Some(seed), &case.instance, &proof.placed, cpu() - began);
    collected.add(&case, row);
    let got = format!("{:.5}, {}", proof.value, if proof.proven { "proven" } else { "not proven" });
    let holds = proof.proven && (proof.value - 0.07013).abs() < 1e-5;
    collected.report.checks.push(Check::holds("x1: the optimum by branch and bound", "0.07013 proven", got, holds));
}

/// Adds findings with the gap between the longest search and the optimum or the best known value.
fn gaps(collected: &mut Collected) {
    let mut said = Vec::new();
    for (case, best) in &collected.best {
        let Some(row) = collected.rows.iter().rfind(|r| r.case == *case && r.policy.starts_with("cgs-search")) else { continue };
        let greedy = collected.rows.iter().find(|r| r.case == *case && r.policy == "cgs-greedy").map_or(f64::NAN, |r| r.value);
        said.push(format!(
            "{case}: {} reaches {:.5}, {:.1} % above the {} {:.5}; cgs-greedy {greedy:.4}",
            row.policy,
            row.value,
            100.0 * (row.value / best.value - 1.0).max(0.0),
            if best.proven { "proven optimum" } else { "best known" },
            best.value
        ));
    }
    collected.report.findings.extend(said);
}
