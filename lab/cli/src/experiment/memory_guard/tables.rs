//! The results as tables, and the findings.

use drover_lab_memguard::experiment::{FOUR, Sample};
use drover_lab_memguard::simulate::Outcome;
use drover_report::{Interval, Table};

use super::plan::{Compared, Results};

const BOTH: &str = "gate-bank";

/// Findings: which policy is better, by which measure.
pub fn findings(results: &Results) -> Vec<String> {
    let four: Vec<&Compared> = results.settings.iter().filter(|compared| compared.setting.is_some_and(|it| FOUR.contains(&it))).collect();
    let mean = |arm: &str, change: fn(&Sample, &Sample) -> f64| {
        let changes = four.iter().filter_map(|compared| compared.arm(arm).map(|sample| change(sample, compared.none())));
        changes.sum::<f64>() / four.len().max(1) as f64
    };
    let line = |arm: &str| {
        format!("restarts {}, workflow time {}", percent(mean(arm, Sample::restarts_change)), percent(mean(arm, Sample::workflow_change)))
    };
    let tuned = |change: fn(&Sample, &Sample) -> f64| {
        results.tuned.iter().map(|tuned| change(&tuned.sample, &tuned.none)).sum::<f64>() / results.tuned.len().max(1) as f64
    };
    let mut lines = vec![
        format!("In the mean over the four settings in which containers are killed ({} seeds each), against no guard:", results.seeds.1),
        format!("  gate-bank: {}", line(BOTH)),
        format!("  bank: {}", line("bank")),
        format!("  youngest victim, nobody paused: {}", line("youngest victim")),
        format!(
            "  the paper's rule, tuned for each setting: restarts {}, workflow time {} (the paper: -40 %, -7 %)",
            percent(tuned(Sample::restarts_change)),
            percent(tuned(Sample::workflow_change))
        ),
    ];
    for mistuned in &results.mistuned {
        let of = |index: usize| mistuned.samples[index].1.restarts();
        lines.push(format!(
            "The paper's rule with {}: {:.1} restarts per container as published, {:.2} in the safety rules",
            mistuned.name,
            of(0),
            of(2)
        ));
    }
    lines
}

/// All tables.
pub fn all(results: &Results) -> Vec<Table> {
    let four = results.settings.iter().filter(|compared| compared.setting.is_some_and(|it| FOUR.contains(&it)));
    vec![
        overview("settings", &results.settings),
        details("four-settings", four),
        tuned(results),
        calm(results),
        mistuned(results),
        details("mixes", results.mixes.iter()),
        overview("assumptions-4gb-140", &results.assumptions),
        quotas(results),
    ]
}

/// A row per set of assumptions: restarts per container and workflow time under each policy.
fn overview(name: &str, compared: &[Compared]) -> Table {
    let arms: Vec<&str> = compared.first().map(|compared| compared.samples.iter().map(|(arm, _)| *arm).collect()).unwrap_or_default();
    let heads = arms.iter().flat_map(|arm| [format!("{arm}: restarts"), "workflow [s]".to_owned()]);
    let mut table = Table::new(name, std::iter::once("setting".to_owned()).chain(heads));
    for compared in compared {
        let cells =
            compared.samples.iter().flat_map(|(_, sample)| [format!("{:.2}", sample.restarts()), format!("{:.0}", sample.workflow())]);
        table.row(std::iter::once(compared.name.clone()).chain(cells));
    }
    table
}

/// A row per set of assumptions and policy: all measures.
fn details<'a>(name: &str, compared: impl Iterator<Item = &'a Compared>) -> Table {
    let heads = [
        "setting",
        "guard",
        "restarts per container",
        "change [%]",
        "workflow [s]",
        "change [%]",
        "execution [s]",
        "longest [s]",
        "wait [s]",
        "longest [s]",
        "done, highest priority [s]",
        "paused [s]",
        "at the gate [s]",
        "sacrificed",
    ];
    let mut table = Table::new(name, heads);
    for compared in compared {
        for (arm, sample) in &compared.samples {
            let interval = |measure: fn(&Outcome) -> f64| {
                let interval = Interval::of(&sample.each(measure));
                format!("{:.2} ± {:.2}", interval.mean, interval.half())
            };
            let seconds = |measure: fn(&Outcome) -> f64| format!("{:.0}", sample.mean(measure));
            table.row([
                compared.name.clone(),
                (*arm).to_owned(),
                interval(Outcome::restart_ratio),
                change(sample.restarts_change(compared.none())),
                interval(|outcome| outcome.workflow),
                change(sample.workflow_change(compared.none())),
                seconds(|outcome| outcome.execution),
                seconds(|outcome| outcome.longest_execution),
                seconds(|outcome| outcome.wait),
                seconds(|outcome| outcome.longest_wait),
                seconds(|outcome| outcome.first_class),
                seconds(|outcome| outcome.paused),
                seconds(|outcome| outcome.gated),
                format!("{:.1}", sample.mean(|outcome| f64::from(outcome.sacrifices))),
            ]);
        }
    }
    table
}

fn tuned(results: &Results) -> Table {
    let heads = [
        "setting",
        "U",
        "L",
        "R",
        "T [s]",
        "restarts [%]",
        "workflow [%]",
        "median set: restarts [%]",
        "worst tenth [%]",
        "sets without an end",
    ];
    let mut table = Table::new("paper-rule-tuned", heads);
    for tuned in &results.tuned {
        let at = |share: f64| tuned.spread.get(((tuned.spread.len() as f64 - 1.0) * share).round() as usize).copied().unwrap_or(f64::NAN);
        table.row([
            format!("{} GB, {} %", tuned.setting.0, tuned.setting.1),
            format!("{:.2}", tuned.settings.upper),
            format!("{:.2}", tuned.settings.lower),
            tuned.settings.per_round.to_string(),
            tuned.settings.round.as_secs().to_string(),
            change(tuned.sample.restarts_change(&tuned.none)),
            change(tuned.sample.workflow_change(&tuned.none)),
            change(at(0.5)),
            change(at(0.9)),
            tuned.endless.to_string(),
        ]);
    }
    table
}

fn calm(results: &Results) -> Table {
    let heads = ["setting", "U", "L", "R", "T [s]", "restarts without", "with", "workflow without [s]", "with [s]"];
    let mut table = Table::new("paper-rule-calm", heads);
    for calm in &results.calm {
        table.row([
            format!("{} GB, {} %", calm.setting.0, calm.setting.1),
            format!("{:.2}", calm.settings.upper),
            format!("{:.2}", calm.settings.lower),
            calm.settings.per_round.to_string(),
            calm.settings.round.as_secs().to_string(),
            format!("{:.4}", calm.none.restarts()),
            format!("{:.4}", calm.sample.restarts()),
            format!("{:.1}", calm.none.workflow()),
            format!("{:.1}", calm.sample.workflow()),
        ]);
    }
    table
}

fn mistuned(results: &Results) -> Table {
    let mut table = Table::new(
        "paper-rule-mistuned",
        ["4 GB, 140 %", "safety", "restarts per container", "workflow [s]", "sacrificed", "runs given up"],
    );
    for mistuned in &results.mistuned {
        for (safety, sample) in &mistuned.samples {
            table.row([
                mistuned.name.to_owned(),
                (*safety).to_owned(),
                format!("{:.2}", sample.restarts()),
                format!("{:.0}", sample.workflow()),
                format!("{:.1}", sample.mean(|outcome| f64::from(outcome.sacrifices))),
                sample.outcomes.iter().filter(|outcome| outcome.unfinished > 0).count().to_string(),
            ]);
        }
    }
    table
}

fn quotas(results: &Results) -> Table {
    let mut table = Table::new("run-time-under-a-pause", ["CPU quota", "run time [s]", "slower by"]);
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
    let free = results.quotas.first().map_or(f64::NAN, |(_, times)| mean(times));
    for (quota, times) in &results.quotas {
        let name = quota.map_or("none".to_owned(), |quota| format!("{quota}m"));
        table.row([name, format!("{:.0}", mean(times)), format!("{:.1}", mean(times) / free)]);
    }
    table
}

fn change(percent: f64) -> String {
    format!("{percent:+.1}")
}

fn percent(value: f64) -> String {
    format!("{value:+.1} %")
}
