//! The learned policy: trains some seeds, and compares them and the model that is shipped with what they must beat.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use drover_lab_groups::experiment::{
    BenchmarkCase, LearnedCase, LearnedScore, MeasuredPlacement, large, learned_cases, learned_ratios, learned_score,
};
use drover_lab_groups::learned::{Learned, LearnedTraining};
use drover_lab_groups::{GraphFile, Greedy, LearnedModel, Placed, Policy, Search, SearchBudget, Weights};
use drover_report::{Check, Interval, Table, percentile};

use super::{Collected, GroupsArgs, cpu, starts, teachers};

/// Generated instances of the evaluation.
pub const GENERATED: usize = 50;

/// Measures the shipped model, and trains `--seeds` models unless that is switched off.
///
/// # Errors
/// A file of a call graph cannot be read, or the file for a model cannot be written.
pub fn run(args: &GroupsArgs, collected: &mut Collected) -> Result<()> {
    let weights = Weights::default();
    collected.say("learned: the cases");
    let cases = learned_cases(&weights, args.common.seed);
    shipped(&cases, &weights, collected);
    if let Some(case) = cases.iter().find(|case| case.name == "x9") {
        let learned = Learned::new(LearnedModel::shipped().clone()).learned(&case.instance, &weights);
        starts::aim(case.name, &case.instance, &learned, &case.greedy, args.common.seed, collected);
    }
    let large_cases = if args.no_large { Vec::new() } else { large() };
    for case in &large_cases {
        on_many_nodes(case, &weights, args.common.seed, collected);
    }
    starts::compare(&large_cases, args.common.seed, collected);
    if args.no_training {
        return Ok(());
    }
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        GraphFile::read(&text).with_context(|| path.display().to_string())
    };
    let training = LearnedTraining { own: args.graph.iter().map(read).collect::<Result<_>>()?, ..LearnedTraining::shipped() };
    let mut models = Vec::new();
    for seed in args.common.seed..args.common.seed + args.seeds {
        let mut watch = |p: &drover_lab_groups::learned::TrainingProgress| {
            collected.say(format!("learned, seed {seed}: {} {} of {}, f is {:.3} of greedy's", p.stage, p.done, p.of, p.validation));
        };
        models.push(training.run(&weights, seed, &mut watch));
    }
    if let (Some(path), Some(first)) = (&args.save_learned, models.first()) {
        std::fs::write(path, first.model.save()?).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let models: Vec<(LearnedModel, LearnedModel)> = models.into_iter().map(|made| (made.model, made.untrained)).collect();
    seeds(&models, &cases, &large_cases, &weights, collected);
    if args.teachers {
        teachers::run(args, &cases, &weights, collected);
    }
    Ok(())
}

/// The shipped model, and the guard.
fn shipped(cases: &[LearnedCase], weights: &Weights, collected: &mut Collected) {
    let policy = Learned::new(LearnedModel::shipped().clone());
    let mut guarded = 0;
    for case in cases {
        let began = cpu();
        let told = policy.guard(&case.instance, weights);
        let seconds = cpu() - began;
        guarded += usize::from(told.took_greedy);
        let known = BenchmarkCase { name: case.name, instance: case.instance.clone(), best: None };
        collected.add(&known, MeasuredPlacement::of(case.name, "learned", None, &case.instance, &told.placed, seconds));
        let faults = told.placed.faults(&case.instance);
        collected.report.checks.push(Check::holds(
            format!("{}: learned keeps to capacity and rules, places all, and is not worse than cgs-greedy", case.name),
            "no fault, none left out, f at most greedy's",
            format!(
                "{} faults, {} left out, f {:.5} against {:.5}",
                faults.len(),
                told.placed.unplaced.len(),
                told.placed.value,
                case.greedy.value
            ),
            faults.is_empty() && told.placed.unplaced.is_empty() && told.placed.value <= case.greedy.value + 1e-9,
        ));
        if case.name.contains("uniform") {
            let groups = told.learned.group_reports(&case.instance);
            let broken = groups.iter().filter(|group| group.places.len() > 1).count();
            collected.report.checks.push(Check::holds(
                format!("{}: learned breaks groups where that pays", case.name),
                "some broken, and better than whole groups",
                format!("{broken} of {} broken, f {:.4} against {:.4}", groups.len(), told.learned.value, case.greedy.value),
                broken > 0 && told.learned.value < case.greedy.value,
            ));
        }
    }
    collected.report.findings.push(format!("learned: the guard took cgs-greedy's placement in {guarded} of {} cases", cases.len()));
}

/// Quality and time on many nodes.
fn on_many_nodes(case: &BenchmarkCase, weights: &Weights, seed: u64, collected: &mut Collected) {
    collected.say(format!("{}: learned", case.name));
    let learned = Learned::new(LearnedModel::shipped().clone());
    let began = cpu();
    let placed = learned.learned(&case.instance, weights);
    let seconds = cpu() - began;
    collected.add(case, MeasuredPlacement::of(case.name, "learned", None, &case.instance, &placed, seconds));
    let search = Search { seed, budget: SearchBudget::Seconds(1.0, Arc::new(cpu)), grouped: true }.place(&case.instance, weights);
    let greedy = Greedy::Groups.place(&case.instance, weights);
    collected.report.checks.push(Check::holds(
        format!("{}: learned keeps to capacity and rules, and is better than cgs-greedy", case.name),
        "no fault, none left out, less than greedy's",
        format!("f {:.4} against {:.4}", placed.value, greedy.value),
        placed.value < greedy.value && placed.unplaced.is_empty() && placed.faults(&case.instance).is_empty(),
    ));
    starts::aim(case.name, &case.instance, &placed, &greedy, seed, collected);
    collected.report.findings.push(format!(
        "{}: learned has {:.4} in {:.0} ms of CPU, {:.2} times what cgs-search has after 1 s ({:.4}); aimed at: 1.15 times in 20 ms on 1,000 nodes",
        case.name,
        placed.value,
        seconds * 1e3,
        placed.value / search.value,
        search.value
    ));
}

/// What each seed beats, and the 50 generated instances.
fn seeds(
    models: &[(LearnedModel, LearnedModel)],
    cases: &[LearnedCase],
    large_cases: &[BenchmarkCase],
    weights: &Weights,
    collected: &mut Collected,
) {
    let needed = (models.len() * 4).div_ceil(5);
    let mut table = Table::new(
        "learned",
        ["case", "seeds", "f median", "least", "most", "mean ± 95 %", "untrained", "best constant", "cgs-greedy", "search"],
    );
    for case in cases {
        collected.say(format!("{}: learned by seed", case.name));
        let scores: Vec<LearnedScore> =
            models.iter().map(|(trained, untrained)| learned_score(case, trained, untrained, weights)).collect();
        let values = |of: fn(&LearnedScore) -> &Placed| scores.iter().map(|score| of(score).value).collect::<Vec<f64>>();
        let rivals = [median(&values(|s| &s.untrained)), case.constant.value, case.greedy.value, case.search.value];
        table.row(by_seed(case.name, &values(|s| &s.trained), rivals.map(|value| format!("{value:.4}"))));
        let mut check = |what: &str, won: usize| {
            let (name, reach) = (format!("{}: learned {what}", case.name), format!("in at least {needed} of {} seeds", models.len()));
            collected.report.checks.push(Check::holds(name, reach, format!("in {won}"), won >= needed));
        };
        check("beats its untrained weights", scores.iter().filter(|s| s.beats(&s.untrained)).count());
        check("beats the best of 200 constant orders", scores.iter().filter(|s| s.beats(&case.constant)).count());
        if case.name == "x1" {
            // No placement is better than that of cgs-greedy there: it is the proven optimum.
            check("is within 0.5 % of the optimum", scores.iter().filter(|s| s.trained.value <= 1.005 * case.greedy.value).count());
        } else {
            check("beats cgs-greedy", scores.iter().filter(|s| s.beats(&case.greedy)).count());
        }
        check("has not collapsed to one node", scores.iter().filter(|s| !s.collapsed).count());
        check("keeps to capacity and rules", scores.iter().filter(|s| s.faults.is_empty()).count());
    }
    for case in large_cases {
        collected.say(format!("{}: learned by seed", case.name));
        let place = |model: &LearnedModel| Learned::new(model.clone()).learned(&case.instance, weights);
        let trained: Vec<Placed> = models.iter().map(|(model, _)| place(model)).collect();
        let values: Vec<f64> = trained.iter().map(|placed| placed.value).collect();
        let untrained: Vec<f64> = models.iter().map(|(_, model)| place(model).value).collect();
        let greedy = Greedy::Groups.place(&case.instance, weights).value;
        let rivals = [format!("{:.4}", median(&untrained)), "-".to_owned(), format!("{greedy:.4}"), "-".to_owned()];
        table.row(by_seed(case.name, &values, rivals));
        let sound = |placed: &&Placed| placed.unplaced.is_empty() && placed.faults(&case.instance).is_empty() && placed.value < greedy;
        let won = trained.iter().filter(sound).count();
        collected.report.checks.push(Check::holds(
            format!("{}: learned beats cgs-greedy, keeps to capacity and leaves nothing out", case.name),
            format!("in at least {needed} of {} seeds", models.len()),
            format!("in {won}"),
            won >= needed,
        ));
    }
    collected.report.tables.push(table);
    collected.say("learned on generated graphs");
    let medians: Vec<(usize, f64)> = models
        .iter()
        .map(|(model, _)| learned_ratios(model, GENERATED, weights))
        .map(|ratios| (ratios.iter().filter(|ratio| **ratio < 1.0 - 1e-9).count(), median(&ratios)))
        .collect();
    let won = medians.iter().filter(|(wins, _)| *wins * 2 > GENERATED).count();
    let got = medians.iter().map(|(wins, ratio)| format!("{wins} ({ratio:.3})")).collect::<Vec<_>>().join(", ");
    collected.report.checks.push(Check::holds(
        format!("{GENERATED} generated graphs on 31 to 60 nodes: learned beats cgs-greedy on most of them"),
        format!("in at least {needed} of {} seeds", models.len()),
        format!("on {got}; in brackets the median of f divided by greedy's"),
        won >= needed,
    ));
}

/// A row of the table `learned`: the values of the seeds, and those of the rivals.
fn by_seed(name: &str, values: &[f64], rivals: [String; 4]) -> Vec<String> {
    let interval = Interval::of(values);
    let mut row = vec![name.to_owned(), values.len().to_string()];
    let ends = [median(values), values.iter().copied().fold(f64::INFINITY, f64::min), values.iter().copied().fold(0.0, f64::max)];
    row.extend(ends.map(|value| format!("{value:.4}")));
    row.push(format!("{:.4} ± {:.4}", interval.mean, interval.half()));
    row.extend(rivals);
    row
}

/// The median by nearest rank.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}
