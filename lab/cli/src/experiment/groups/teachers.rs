//! `--teachers`: the same network from each teacher, with the same seeds, beside `cgs-greedy`.

use drover_lab_groups::experiment::{BenchmarkCase, LearnedCase, large, learned_ratios, learned_score};
use drover_lab_groups::learned::{Learned, LearnedResult, LearnedTraining, TrainingProgress};
use drover_lab_groups::{Greedy, Policy, Weights};
use drover_report::{Table, percentile};

use super::learned::GENERATED;
use super::{Collected, GroupsArgs, cpu};

/// Episodes of the imitation and of the rollouts, and updates of actor and critic: those of the shipped model, and as long a training.
const EPISODES: usize = 300;
const ROLLOUTS: usize = 1_600;
const UPDATES: usize = 30_000;

/// Trains by every teacher, and compares what they have taught, without refinement. Nothing of it is a check: the reach is that of the
/// shipped training.
pub fn run(args: &GroupsArgs, cases: &[LearnedCase], weights: &Weights, collected: &mut Collected) {
    let teachers = [
        ("imitation of cgs-search", LearnedTraining::imitation(EPISODES)),
        ("actor and critic", LearnedTraining::actor_critic(UPDATES)),
        ("imitation, then actor and critic", LearnedTraining::imitation_then_actor_critic(EPISODES, UPDATES)),
        ("imitation, then rollouts", LearnedTraining::imitation_then_rollouts(EPISODES, ROLLOUTS)),
    ];
    let heads = ["teacher", "seeds", "CPU s", "validation untrained", "validation trained", "generated: f / greedy's", "generated: won"];
    let names: Vec<String> = cases.iter().map(|case| case.name.to_owned()).collect();
    let many = if args.no_large { None } else { large().pop() };
    let last = many.iter().map(|case| case.name.to_owned());
    let mut table = Table::new("teachers", heads.map(str::to_owned).into_iter().chain(names).chain(last));
    for (name, training) in teachers {
        let mut seconds = Vec::new();
        let mut train = |seed| {
            let mut watch = |p: &TrainingProgress| {
                collected.say(format!("{name}, seed {seed}: {} {} of {}, f is {:.3} of greedy's", p.stage, p.done, p.of, p.validation));
            };
            let began = cpu();
            let result = training.run(weights, seed, &mut watch);
            seconds.push(cpu() - began);
            result
        };
        let results: Vec<LearnedResult> = (args.common.seed..args.common.seed + args.seeds).map(&mut train).collect();
        collected.say(format!("{name}: evaluation"));
        table.row(row(name, &seconds, &results, cases, many.as_ref(), weights));
    }
    let mut greedy = vec!["cgs-greedy", "", "", "", "1", "1", ""].into_iter().map(str::to_owned).collect::<Vec<_>>();
    greedy.extend(cases.iter().map(|case| format!("{:.4}", case.greedy.value)));
    greedy.extend(many.iter().map(|case| format!("{:.4}", Greedy::Groups.place(&case.instance, weights).value)));
    table.row(greedy);
    collected.report.tables.push(table);
}

/// Medians over the seeds.
fn row(
    name: &str,
    seconds: &[f64],
    results: &[LearnedResult],
    cases: &[LearnedCase],
    many: Option<&BenchmarkCase>,
    weights: &Weights,
) -> Vec<String> {
    let median = |of: &dyn Fn(&LearnedResult) -> f64| percentile(&results.iter().map(of).collect::<Vec<_>>(), 0.5);
    let first = |result: &LearnedResult| result.validations.first().map_or(f64::NAN, |(.., value)| *value);
    let best = |result: &LearnedResult| result.validations.iter().map(|(.., value)| *value).fold(f64::INFINITY, f64::min);
    let ratios: Vec<Vec<f64>> =
        results.iter().map(|result| learned_ratios(&result.model, GENERATED, weights)).map(|[alone, _]| alone).collect();
    let of_ratios = |of: &dyn Fn(&Vec<f64>) -> f64| percentile(&ratios.iter().map(of).collect::<Vec<_>>(), 0.5);
    let won = of_ratios(&|one| one.iter().filter(|ratio| **ratio < 1.0 - 1e-9).count() as f64);
    let mut row = vec![
        name.to_owned(),
        results.len().to_string(),
        format!("{:.0}", percentile(seconds, 0.5)),
        format!("{:.3}", median(&first)),
        format!("{:.3}", median(&best)),
        format!("{:.3}", of_ratios(&|one| percentile(one, 0.5))),
        format!("{won} of {GENERATED}"),
    ];
    for case in cases {
        row.push(format!("{:.4}", median(&|result| learned_score(case, &result.model, &result.untrained, weights).trained.value)));
    }
    if let Some(case) = many {
        row.push(format!("{:.4}", median(&|result| Learned::new(result.model.clone()).chosen(&case.instance, weights).value)));
    }
    row
}
