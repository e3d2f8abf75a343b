//! Checks of the results: those of the paper's rule against the paper's own, and that `gate-bank` helps and harms nowhere.

use drover_lab_memguard::experiment::{FOUR, SIZES, Sample};
use drover_report::{Check, Interval};

use super::plan::{CALM, Compared, Results, Tuned};

/// All checks.
pub fn all(results: &Results) -> Vec<Check> {
    let mut checks = Vec::new();
    fitted(results, &mut checks);
    average(results, &mut checks);
    no_effect(results, &mut checks);
    gate_bank(results, &mut checks);
    livelock(results, &mut checks);
    checks
}

fn setting(results: &Results, setting: (u32, u32)) -> Option<&Compared> {
    results.settings.iter().find(|compared| compared.setting == Some(setting))
}

/// Checks that the paper's rule, fitted to this one setting, changes as much as the paper measured there: -58 % restarts, -13 % time.
fn fitted(results: &Results, checks: &mut Vec<Check>) {
    let Some((none, paper)) = setting(results, (4, 140)).and_then(|compared| Some((compared.none(), compared.arm("paper")?))) else {
        return;
    };
    checks.push(Check::within("paper's rule, fitted, 4 GB 140 %: restarts", -58.0, 10.0, paper.restarts_change(none), "%"));
    checks.push(Check::within("paper's rule, fitted, 4 GB 140 %: workflow time", -13.0, 4.0, paper.workflow_change(none), "%"));
}

/// Checks the mean change over the four settings of the paper against the paper's own mean: -40 % restarts, -7 % time.
fn average(results: &Results, checks: &mut Vec<Check>) {
    let mean = |change: fn(&Sample, &Sample) -> f64| {
        results.tuned.iter().map(|tuned| change(&tuned.sample, &tuned.none)).sum::<f64>() / results.tuned.len() as f64
    };
    checks.push(Check::within(
        "paper's rule, best parameters, mean of the four: restarts",
        -40.0,
        12.0,
        mean(Sample::restarts_change),
        "%",
    ));
    checks.push(Check::within(
        "paper's rule, best parameters, mean of the four: workflow time",
        -7.0,
        5.0,
        mean(Sample::workflow_change),
        "%",
    ));
}

/// Restarts per container are given with two decimal places, as in the paper; less than half of the last one counts as no difference.
const NONE: f64 = 0.005;

/// Number of settings with an oversubscription of at most 120 %.
const CALM_SETTINGS: usize = SIZES.len() * CALM.len();

/// Checks that the rule changes nothing at up to 120 %, compared with no guard. Even without a guard a container is killed in some of these
/// runs, because the model is random.
fn no_effect(results: &Results, checks: &mut Vec<Check>) {
    let most = |change: fn(&Tuned) -> f64| match results.calm.len() {
        CALM_SETTINGS => results.calm.iter().map(change).fold(0.0, f64::max),
        // For one of them no parameters kept every run finite, so the effect is unbounded.
        _ => f64::INFINITY,
    };
    let restarts = most(|calm| (calm.sample.restarts() - calm.none.restarts()).abs());
    let time = most(|calm| calm.sample.workflow_change(&calm.none).abs());
    let name = "up to 120 %, the paper's rule with the best parameters of each setting";
    checks.push(Check::at_most(format!("{name}: it changes restarts per container by"), NONE, restarts, ""));
    checks.push(Check::at_most(format!("{name}: it changes the workflow time by"), 1.0, time, "%"));
}

/// Checks that `gate-bank` helps in the four settings of the paper and makes nothing worse anywhere else.
fn gate_bank(results: &Results, checks: &mut Vec<Check>) {
    for (size, percent) in FOUR {
        let pair = setting(results, (size, percent)).and_then(|compared| Some((compared.none(), compared.arm("gate-bank")?)));
        let Some((none, guarded)) = pair else { continue };
        checks.push(Check::at_most(format!("gate-bank, {size} GB {percent} %: restarts"), -90.0, guarded.restarts_change(none), "%"));
        checks.push(Check::at_most(format!("gate-bank, {size} GB {percent} %: workflow time"), -20.0, guarded.workflow_change(none), "%"));
    }
    let everywhere = || results.settings.iter().chain(&results.mixes).chain(&results.assumptions);
    let worst = |change: fn(&Sample, &Sample) -> f64| {
        let changes =
            everywhere().filter_map(|compared| Some((change(compared.arm("gate-bank")?, compared.none()), compared.name.as_str())));
        changes.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::NAN, "nowhere"))
    };
    let (change, place) = worst(Sample::restarts_change);
    checks.push(Check::at_most(format!("gate-bank, worst of all settings, mixes and assumptions ({place}): restarts"), 0.0, change, "%"));
    let (change, place) = worst(surely_slower);
    let name = format!("gate-bank, worst of all settings, mixes and assumptions ({place}): slower for sure (95 %) by");
    checks.push(Check::at_most(name, 0.0, change, "%"));
}

/// By how many percent the workflow is slower than under `base`: the lower end of the 95 % interval of the differences per seed.
fn surely_slower(sample: &Sample, base: &Sample) -> f64 {
    let (times, before) = (sample.each(|outcome| outcome.workflow), base.each(|outcome| outcome.workflow));
    let differences: Vec<f64> = times.iter().zip(&before).map(|(time, before)| 100.0 * (time - before) / base.workflow()).collect();
    Interval::of(&differences).low
}

/// Checks that badly tuned parameters make the published rule restart at least twice as often as no guard, and that the same parameters
/// within the safety rules restart no more often and let every run end.
fn livelock(results: &Results, checks: &mut Vec<Check>) {
    let Some(none) = setting(results, (4, 140)).map(Compared::none) else { return };
    for mistuned in &results.mistuned {
        let [published, _, safe] = &mistuned.samples;
        let name = mistuned.name;
        checks.push(Check::at_least(
            format!("livelock of the paper's rule with {name}: restarts against no guard"),
            2.0,
            published.1.restarts() / none.restarts(),
            "times",
        ));
        checks.push(Check::at_most(
            format!("the same in the safety rules, with {name}: restarts against no guard"),
            1.0,
            safe.1.restarts() / none.restarts(),
            "times",
        ));
        checks.push(Check::holds(
            format!("the same in the safety rules, with {name}: every run ends"),
            "yes",
            if safe.1.finished() { "yes" } else { "no" },
            safe.1.finished(),
        ));
    }
}
