//! CGS-DDPG in the paper's form: compares the trained policy with untrained weights, constant orders, greedy and search, and finds which of
//! the paper's statements can be repeated. Its limits are those of the form (docs/how-to/group-placement.md), so nothing here is a check.

use anyhow::{Context, Result};
use drover_lab_groups::ddpg::Training;
use drover_lab_groups::experiment::{self, MeasuredPlacement, SCALES, ScaleEvaluation, TrainingRun, curve};
use drover_lab_groups::{RHO, Weights};
use drover_report::{Chart, Check, Interval, Table};

use super::{Collected, GroupsArgs, cpu};

/// Group sizes (rho) that the paper tried.
const RHOS: [Option<usize>; 4] = [None, Some(3), Some(4), Some(5)];
/// Updates after which the paper calls its curve stable.
const STABLE: f64 = 4_200.0;

/// Trains and evaluates the policies, and adds the checks.
///
/// # Errors
/// The policy file cannot be written.
pub fn run(args: &GroupsArgs, collected: &mut Collected) -> Result<()> {
    let updates = args.updates as usize;
    let mut by_rho: Vec<(Option<usize>, Vec<TrainingRun>)> = Vec::new();
    for rho in RHOS {
        by_rho.push((rho, train(args, &Training::paper(updates), rho, "paper", collected)));
    }
    let delta = train(args, &Training::delta(updates), Some(RHO), "delta", collected);
    let paper = by_rho.iter().find(|(rho, _)| *rho == Some(RHO)).map(|(_, runs)| runs.as_slice()).unwrap_or_default();
    if let (Some(path), Some(run)) = (&args.save_policy, paper.first()) {
        std::fs::write(path, run.trained.best.save()?).with_context(|| format!("cannot write {}", path.display()))?;
    }
    rows(paper, "paper", collected);
    rows(&delta, "delta", collected);
    let verdicts = [acceptance(paper, "paper", collected), acceptance(&delta, "delta", collected)];
    orderings(paper, collected);
    curves(&by_rho, &delta, collected);
    sizes(&by_rho, collected);
    let mut first = verdicts.concat();
    first.append(&mut collected.report.findings);
    collected.report.findings = first;
    Ok(())
}

/// Trains with each seed, and reports the progress.
fn train(args: &GroupsArgs, training: &Training, rho: Option<usize>, label: &str, collected: &mut Collected) -> Vec<TrainingRun> {
    let seeds = args.common.seed..args.common.seed + args.seeds;
    let one = |seed| {
        let said = |updates: usize| {
            if updates.is_multiple_of(500) {
                collected.say(format!("training {label}, rho {}, seed {seed}: {updates} of {}", name(rho), training.updates));
            }
        };
        experiment::run(training, rho, &Weights::default(), seed, &mut { said })
    };
    seeds.map(one).collect()
}

fn name(rho: Option<usize>) -> String {
    rho.map_or_else(|| "none".to_owned(), |r| r.to_string())
}

/// Every seed, with untrained weights and the best constant order beside it.
fn rows(runs: &[TrainingRun], label: &str, collected: &mut Collected) {
    let cases = experiment::scales(drover_lab_groups::Setting::default());
    for (i, case) in cases.iter().enumerate() {
        for run in runs {
            let test = &run.tests[i];
            let began = cpu();
            let _ = drover_lab_groups::Policy::place(&run.trained.best, &test.instance, &Weights::default());
            let seconds = cpu() - began;
            let kinds = [("", &test.trained, seconds), (" untrained", &test.untrained, seconds), (" + search", &test.polished, f64::NAN)];
            for (what, placed, seconds) in kinds {
                let row =
                    MeasuredPlacement::of(case.name, format!("cgs-ddpg {label}{what}"), Some(run.seed), &test.instance, placed, seconds);
                collected.add(case, row);
            }
            if label == "paper" {
                let row = MeasuredPlacement::of(case.name, "best constant order", Some(run.seed), &test.instance, &test.constant, f64::NAN);
                collected.add(case, row);
            }
        }
    }
}

/// Adds the checks whether the trained policy beats its rivals in four of five seeds and has not collapsed to one node. Returns lines that
/// say where learning wins and where it loses.
fn acceptance(runs: &[TrainingRun], label: &str, collected: &mut Collected) -> Vec<String> {
    let needed = (runs.len() * 4).div_ceil(5);
    let mut lines = Vec::new();
    for (i, scale) in SCALES.into_iter().enumerate() {
        let tests: Vec<&ScaleEvaluation> = runs.iter().map(|r| &r.tests[i]).collect();
        let wins = |rival: fn(&ScaleEvaluation) -> &drover_lab_groups::Placed| tests.iter().filter(|t| t.beats(rival(t))).count();
        let against = [
            ("untrained weights", wins(|t| &t.untrained)),
            ("the best constant order", wins(|t| &t.constant)),
            ("cgs-greedy", wins(|t| &t.greedy)),
        ];
        for (rival, won) in against {
            let check = format!("x{scale}: cgs-ddpg ({label}) beats {rival}");
            let (reach, got) = (format!("in at least {needed} of {} seeds", runs.len()), format!("in {won}"));
            collected.report.statements.push(Check::holds(check, reach, got, won >= needed));
        }
        let collapsed = tests.iter().filter(|t| t.collapsed).count();
        collected.report.statements.push(Check::holds(
            format!("x{scale}: cgs-ddpg ({label}) has not collapsed to one node"),
            "in no seed",
            format!("in {collapsed}"),
            collapsed == 0,
        ));
        let value = |of: fn(&ScaleEvaluation) -> f64| tests.iter().map(|t| of(t)).collect::<Vec<_>>();
        let (trained, polished) = (value(|t| t.trained.value), value(|t| t.polished.value));
        let (wins_over, loses_to): (Vec<_>, Vec<_>) = against.into_iter().partition(|(_, won)| *won >= needed);
        let list = |of: &[(&str, usize)]| {
            if of.is_empty() {
                "none".to_owned()
            } else {
                of.iter().map(|(r, w)| format!("{r} ({w} of {})", runs.len())).collect::<Vec<_>>().join(", ")
            }
        };
        lines.push(format!(
            "learning ({label}) at x{scale}: f {:.4} ± {:.4}; wins against {}; does not win against {}; after a polish by search {:.4}",
            Interval::of(&trained).mean,
            Interval::of(&trained).half(),
            list(&wins_over),
            list(&loses_to),
            Interval::of(&polished).mean
        ));
    }
    lines
}

/// What the paper says about who is before whom, where its absolute numbers cannot be had.
fn orderings(paper: &[TrainingRun], collected: &mut Collected) {
    let row = |case: &str, policy: &str| collected.rows.iter().find(|r| r.case == case && r.policy == policy).cloned();
    let mut checks = Vec::new();
    let mut away = Vec::new();
    for (i, scale) in SCALES.into_iter().enumerate() {
        let case = format!("x{scale}");
        let (Some(spread), Some(binpack), Some(aco)) = (row(&case, "spread"), row(&case, "binpack"), row(&case, "aco")) else { return };
        let method: Vec<MeasuredPlacement> =
            paper.iter().map(|r| MeasuredPlacement::of(&case, "", None, &r.tests[i].instance, &r.tests[i].trained, f64::NAN)).collect();
        let mean = |of: fn(&MeasuredPlacement) -> f64| Interval::of(&method.iter().map(of).collect::<Vec<_>>()).mean;
        let (cluster, container, response) = (mean(|r| r.terms.cluster), mean(|r| r.terms.container), mean(|r| r.response));
        let best = spread.terms.cluster.min(aco.terms.cluster);
        checks.push(Check::holds(
            format!("{case}: the paper's sigma_cluster: binpack by far the worst"),
            "binpack > 1.5 x each of spread, aco, cgs-ddpg",
            format!("{:.3} against {:.3}, {:.3}, {cluster:.3}", binpack.terms.cluster, spread.terms.cluster, aco.terms.cluster),
            binpack.terms.cluster > 1.5 * spread.terms.cluster.max(aco.terms.cluster).max(cluster),
        ));
        checks.push(Check::holds(
            format!("{case}: the paper's sigma_cluster: cgs-ddpg close to spread and aco"),
            "at most 0.05 above the better of them",
            format!("{cluster:.3} against {best:.3}"),
            cluster <= best + 0.05,
        ));
        checks.push(Check::holds(
            format!("{case}: the paper's sigma_container: cgs-ddpg < binpack < spread, aco"),
            "in this order",
            format!("{container:.3}, {:.3}, {:.3}, {:.3}", binpack.terms.container, spread.terms.container, aco.terms.container),
            container < binpack.terms.container && binpack.terms.container < spread.terms.container.min(aco.terms.container),
        ));
        let rival = spread.response.min(aco.response);
        let (reach, holds) = if scale == 1 {
            ("within 25 % of the better of spread and aco", (response / rival - 1.0).abs() <= 0.25)
        } else {
            ("before spread and aco", response < rival)
        };
        checks.push(Check::holds(
            format!("{case}: the paper's response time (here: a model)"),
            reach,
            format!("{response:.1} ms against {:.1} and {:.1} ms", spread.response, aco.response),
            holds,
        ));
        away.push(container * scale as f64);
        if scale == 9 {
            let classes = [0, 1, 2].map(|c| method.iter().map(|r| r.classes[c]).sum::<f64>() / method.len().max(1) as f64);
            let off = classes.iter().zip([1.0, 2.0, 3.0]).map(|(got, want)| (got - want / 6.0).abs()).fold(0.0, f64::max);
            checks.push(Check::holds(
                "x9: the paper's share of containers per node class 1:2:3",
                "each within 5 points of 16.7, 33.3, 50.0 %",
                format!("{:.1}, {:.1}, {:.1} %", 100.0 * classes[0], 100.0 * classes[1], 100.0 * classes[2]),
                off <= 0.05,
            ));
        }
    }
    let grows = away.windows(2).all(|w| w[1] < 3.0 * w[0]);
    let got = away.iter().map(|a| format!("{a:.3}")).collect::<Vec<_>>().join(", ");
    checks.push(Check::holds(
        "the paper's sigma_container (not normalised) grows sub-linearly with x1, x3, x9",
        "less than 3 times each step",
        got,
        grows,
    ));
    collected.report.statements.append(&mut checks);
}

/// Reward curves, by size of group and by kind of reward.
fn curves(by_rho: &[(Option<usize>, Vec<TrainingRun>)], delta: &[TrainingRun], collected: &mut Collected) {
    let mean = |runs: &[TrainingRun]| {
        let all: Vec<(usize, f64)> = runs.iter().flat_map(|r| r.trained.rewards.iter().copied()).collect();
        curve(&all, 250)
    };
    let mut chart = Chart::lines("rewards-paper", "CGS-DDPG, reward of the paper, by group size", "updates", "mean reward of a step");
    for (rho, runs) in by_rho {
        chart = chart.series(format!("rho {}", name(*rho)), mean(runs));
    }
    collected.report.charts.push(chart);
    let title = "CGS-DDPG, delta reward, rho 4";
    collected.report.charts.push(Chart::lines("rewards-delta", title, "updates", "mean reward of a step").series("delta", mean(delta)));

    let last = |runs: &[TrainingRun]| mean(runs).last().map_or(f64::NAN, |p| p.1);
    let four = by_rho.iter().find(|(rho, _)| *rho == Some(RHO)).map(|(_, runs)| runs.as_slice()).unwrap_or_default();
    let ends = by_rho.iter().map(|(rho, runs)| format!("rho {} {:.4}", name(*rho), last(runs))).collect::<Vec<_>>().join(", ");
    let is_best = by_rho.iter().all(|(_, runs)| last(runs) <= last(four));
    collected.report.statements.push(Check::holds("the paper's reward curves: rho 4 ends best", "the largest of all", ends, is_best));
    let late: Vec<f64> = mean(four).into_iter().filter(|(x, _)| *x >= STABLE).map(|p| p.1).collect();
    let spread = late.iter().copied().fold(f64::NEG_INFINITY, f64::max) - late.iter().copied().fold(f64::INFINITY, f64::min);
    let all: Vec<f64> = mean(four).into_iter().map(|p| p.1).collect();
    let range = all.iter().copied().fold(f64::NEG_INFINITY, f64::max) - all.iter().copied().fold(f64::INFINITY, f64::min);
    let got = format!("varies by {spread:.4} of {range:.4} over {} windows", late.len());
    let holds = late.len() > 1 && spread <= 0.25 * range;
    collected.report.statements.push(Check::holds(
        "the paper's reward curve: stable after 4,200 updates",
        "varies by at most a quarter of its range",
        got,
        holds,
    ));
}

/// What each group size is worth on the test application.
fn sizes(by_rho: &[(Option<usize>, Vec<TrainingRun>)], collected: &mut Collected) {
    let mut table =
        Table::new("rho", ["rho", "scale", "f mean", "f half interval", "untrained", "best constant", "cgs-greedy", "polished"]);
    for (rho, runs) in by_rho {
        for (i, scale) in SCALES.into_iter().enumerate() {
            let of = |f: fn(&ScaleEvaluation) -> f64| Interval::of(&runs.iter().map(|r| f(&r.tests[i])).collect::<Vec<_>>());
            let trained = of(|t| t.trained.value);
            let mean = |f: fn(&ScaleEvaluation) -> f64| format!("{:.4}", of(f).mean);
            table.row([
                name(*rho),
                format!("x{scale}"),
                format!("{:.4}", trained.mean),
                format!("{:.4}", trained.half()),
                mean(|t| t.untrained.value),
                mean(|t| t.constant.value),
                mean(|t| t.greedy.value),
                mean(|t| t.polished.value),
            ]);
        }
    }
    collected.report.tables.push(table);
}
