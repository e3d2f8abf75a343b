//! `drover experiment autoscaling`: the RL-HPA paper's cases, compared with policies that the paper leaves out.

mod real;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use drover_lab_autoscaling::experiment::{Comparison, Outcome, Plan, compare};
use drover_lab_autoscaling::sim::{Shape, Trace};
use drover_report::{Chart, Check, Interval, Report, Table};
use indicatif::ProgressBar;

use super::{Common, finish};
use crate::autoscale::read_trace;
use crate::bench::cleanup;
use crate::data;
use drover::globals::Format;

/// `drover experiment autoscaling`.
#[derive(Debug, Args)]
#[command(after_help = "\
With --real the launch trace is played to pods on a real kubelet (root), which is started for that and removed at the end, also after \
Ctrl-C. Case b learns in one pass over the first quarter of it in the cluster, case c in one pass in the simulator; then the agent scales \
both over the rest. The peak is what four of the pods serve, as in the paper; they serve about 20 requests per second each. With the default \
speed it takes about 20 minutes.

Examples:
  drover experiment autoscaling --data traces/ --seeds 5 --out autoscaling/
  drover experiment autoscaling --real --speed 40 --out real/")]
pub struct AutoscalingArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: Common,
    /// Number of seeds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=1_000))]
    pub seeds: u64,
    /// Directory with the traces nasa_paperlike_launch20k.csv and nasa_paperlike_rpm20k.csv [default: the first that has one, of
    /// ../shared/data and of where `drover data import` puts them]. Instead of one that is missing a generated trace is checked.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Another trace (CSV) to compare on; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub trace: Vec<PathBuf>,
    /// Leave out the generated traces.
    #[arg(long)]
    pub no_generated: bool,
    /// Carry out the paper's case b, one pass of learning in a real cluster, on a kubelet of this machine; needs root.
    #[arg(long, conflicts_with_all = ["seeds", "trace", "no_generated"])]
    pub real: bool,
    /// How many times as fast the trace is played with --real: its 20,000 s take 1,000 s at 20.
    #[arg(long, value_name = "TIMES", default_value_t = 20, requires = "real", value_parser = clap::value_parser!(u16).range(5..=100))]
    pub speed: u16,
}

/// The paper's two traces, as the checks name them, and the generated ones of the same shape.
const TRACES: [(&str, &str, &str, Shape); 2] = [
    ("launch", "nasa_paperlike_launch20k.csv", "generated-launch", Shape::Launch),
    ("rpm", "nasa_paperlike_rpm20k.csv", "generated-idle", Shape::Idle),
];
/// Highest cost and number of expired requests of the guarded learner, relative to the tuned HPA.
const COST: f64 = 1.10;
const EXPIRED: f64 = 1.02;

/// Compares the policies on every load, or carries out case b in a cluster, and delivers the report.
///
/// # Errors
/// A trace cannot be read, or a file cannot be written.
pub fn run(args: &AutoscalingArgs, format: Format) -> Result<ExitCode> {
    if args.real {
        return cleanup::run(real::measure(args, format));
    }
    let plan = Plan { first_seed: args.common.seed, seeds: args.seeds, ..Plan::default() };
    let mut traces: Vec<(String, Option<Trace>)> = Vec::new();
    let data = args.data.clone().unwrap_or_else(found);
    for (name, file, ..) in TRACES {
        let path = data.join(file);
        traces.push((name.to_owned(), if path.exists() { Some(read_trace(&path)?) } else { None }));
    }
    if !args.no_generated {
        let peak = plan.simulated.capacity.of(plan.simulated.max_pods);
        for (_, _, name, shape) in TRACES {
            traces.push((name.to_owned(), Some(Trace::generate(shape, plan.end, peak, args.common.seed))));
        }
    }
    for path in &args.trace {
        traces.push((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), Some(read_trace(path)?)));
    }
    let bar = ProgressBar::new_spinner();
    let mut compared = Vec::new();
    for (name, trace) in &traces {
        let result = trace.as_ref().map(|trace| {
            compare(&plan, trace, &mut |what| {
                bar.set_message(format!("{name}: {what}"));
                bar.tick();
            })
        });
        compared.push((name.clone(), result));
    }
    bar.finish_and_clear();
    finish(&report(&plan, &compared, &data), &args.common, format)
}

/// The paper's main trace or, if it is not there, the generated one of its shape.
fn main_trace(args: &AutoscalingArgs) -> Result<(String, Trace)> {
    let (name, file, generated, shape) = TRACES[0];
    let path = args.data.clone().unwrap_or_else(found).join(file);
    if path.exists() {
        return Ok((name.to_owned(), read_trace(&path)?));
    }
    let Plan { simulated, end, .. } = Plan::default();
    Ok((generated.to_owned(), Trace::generate(shape, end, simulated.capacity.of(simulated.max_pods), args.common.seed)))
}

/// The first directory that has one of the traces.
fn found() -> PathBuf {
    let places = [PathBuf::from("../shared/data"), data::directory()];
    let has_one = |place: &PathBuf| TRACES.iter().any(|(_, file, ..)| place.join(file).exists());
    places.into_iter().find(has_one).unwrap_or_else(data::directory)
}

/// Findings, tables, charts and checks.
fn report(plan: &Plan, compared: &[(String, Option<Comparison>)], data: &Path) -> Report {
    let mut report = Report::new("autoscaling");
    for (name, comparison) in compared {
        match comparison {
            Some(comparison) => findings(&mut report, name, comparison),
            None => {
                report.finding(format!("{name}: no trace in {}; `drover data import` makes it", data.display()));
            }
        }
    }
    report.finding(format!(
        "paper mode: alpha {}, gamma {}, guards off; guarded: alpha {}, gamma {}, noise fading by {} a decision; {} seeds, seconds {} to {}",
        plan.alpha, plan.gamma, plan.guarded.alpha, plan.guarded.gamma, plan.guarded.noise_decay, plan.seeds, plan.training, plan.end
    ));
    for (name, comparison) in compared.iter().filter_map(|(name, comparison)| Some((name, comparison.as_ref()?))) {
        report.tables.push(outcomes(name, comparison));
        report.tables.push(tuning(name, comparison));
        report.charts.extend(courses(name, comparison, plan.simulated.penalty));
    }
    for (trace, _, generated, _) in TRACES {
        let of = |wanted: &str| compared.iter().find(|(name, _)| name == wanted).and_then(|(_, comparison)| comparison.as_ref());
        let (name, comparison) = match (of(trace), of(generated)) {
            (None, Some(comparison)) => (generated, Some(comparison)),
            (comparison, _) => (trace, comparison),
        };
        report.checks.extend(checks(name, trace == TRACES[0].0, comparison));
    }
    report
}

/// Adds a finding per comparison: which policy is cheaper.
fn findings(report: &mut Report, name: &str, comparison: &Comparison) {
    let Some(cheapest) = comparison.outcomes.iter().min_by(|one, other| one.mean_cost().total_cmp(&other.mean_cost())) else { return };
    report.finding(format!("{name}: the cheapest is {} ({:.0} pod-seconds)", cheapest.label, cheapest.mean_cost()));
    let [a, b, c, d, hpa, guarded] = ["a", "b", "c", "d", "hpa", "guarded"].map(|case| comparison.get(case));
    let (Some(a), Some(b), Some(c), Some(d), Some(hpa), Some(guarded)) = (a, b, c, d, hpa, guarded) else { return };
    let saving = |better: &Outcome, worse: &Outcome| 100.0 * (1.0 - better.mean_cost() / worse.mean_cost());
    report.finding(format!(
        "{name}: 10 passes (d) cost {:.1} % less than none (a) [paper: 42.6 %]; a real pass (b) {:.1} % less than a simulated one (c) [paper: 11.2 %]",
        saving(d, a),
        saving(b, c)
    ));
    for (what, outcome) in [("RL as in the paper (d)", d), ("guarded RL", guarded)] {
        let (wins, ratio) = (outcome.mean_cost() < hpa.mean_cost(), outcome.mean_cost() / hpa.mean_cost());
        let verdict = if wins { "wins against" } else { "loses to" };
        report.finding(format!(
            "{name}: {what} {verdict} the tuned HPA: {ratio:.3} of its cost, {:.3} of its expired requests",
            outcome.mean_expired() / hpa.mean_expired()
        ));
    }
}

fn outcomes(name: &str, comparison: &Comparison) -> Table {
    let mut table = Table::new(format!("{name}-outcomes"), ["case", "what", "cost [pod-s]", "pods [pod-s]", "expired [requests]"]);
    for outcome in &comparison.outcomes {
        let interval = |samples: &[f64]| {
            let Interval { mean, .. } = Interval::of(samples);
            format!("{mean:.0} ± {:.0}", Interval::of(samples).half())
        };
        table.row([
            outcome.name.clone(),
            outcome.label.clone(),
            interval(&outcome.cost),
            interval(&outcome.pod_seconds),
            interval(&outcome.expired),
        ]);
    }
    table
}

fn tuning(name: &str, comparison: &Comparison) -> Table {
    let mut table = Table::new(format!("{name}-hpa"), ["target [%]", "stabilised over [s]", "cost [pod-s]", "expired [requests]"]);
    for (target, stabilisation, cost, expired) in &comparison.tuning {
        table.row([target.to_string(), format!("{stabilisation:.0}"), format!("{cost:.0}"), format!("{expired:.0}")]);
    }
    table
}

fn courses(name: &str, comparison: &Comparison, penalty: f64) -> [Chart; 2] {
    let mut pods = Chart::lines(format!("{name}-pods"), format!("{name}: pods asked for (first seed)"), "time [s]", "pods");
    let mut cost = Chart::lines(format!("{name}-cost"), format!("{name}: cost so far (first seed)"), "time [s]", "pod-seconds");
    for outcome in comparison.outcomes.iter().filter(|outcome| ["a", "d", "hpa", "kpa", "guarded"].contains(&outcome.name.as_str())) {
        let mut spent = 0.0;
        let so_far = outcome.course.iter().map(|sample| {
            spent += sample.totals.cost(penalty);
            (sample.at, spent)
        });
        cost = cost.series(&outcome.label, so_far.collect());
        if ["d", "hpa", "guarded"].contains(&outcome.name.as_str()) {
            pods = pods.series(&outcome.label, outcome.course.iter().map(|sample| (sample.at, f64::from(sample.pods))).collect());
        }
    }
    [pods, cost]
}

/// The checks on a trace; there are more for the paper's main one.
fn checks(trace: &str, main: bool, comparison: Option<&Comparison>) -> Vec<Check> {
    let pair = |one: &str, other: &str| comparison.and_then(|comparison| Some((comparison.get(one)?, comparison.get(other)?)));
    let named = |what: &str| format!("{trace}: {what}");
    let mut checks = Vec::new();
    let mut check = |name: String, reach: &str, got: Option<(String, bool)>| {
        let (got, ok) = got.unwrap_or_else(|| ("no trace".to_owned(), false));
        checks.push(Check::holds(name, reach, got, ok));
    };
    if main {
        let (d, a) = pair("d", "a").unzip();
        let apart = d.zip(a).map(|(d, a)| {
            let (d, a) = (Interval::of(&d.cost), Interval::of(&a.cost));
            (format!("{:.0} ± {:.0} and {:.0} ± {:.0}", d.mean, d.half(), a.mean, a.half()), d.below(&a))
        });
        check(named("d costs less than a"), "95 % intervals apart, pod-seconds", apart);
        let fewer = |of: fn(&Outcome) -> f64| d.zip(a).map(|(d, a)| (format!("{:.0} and {:.0}", of(d), of(a)), of(d) < of(a)));
        check(named("d uses fewer pods than a"), "means, pod-seconds", fewer(Outcome::mean_pod_seconds));
        check(named("d expires fewer requests than a"), "means, requests", fewer(Outcome::mean_expired));
    }
    let beside = |of: fn(&Outcome) -> f64, most: f64| {
        pair("guarded", "hpa").map(|(guarded, hpa)| {
            let ratio = of(guarded) / of(hpa).max(1.0);
            (format!("{ratio:.3}"), ratio <= most)
        })
    };
    check(named("guarded RL's cost beside the tuned HPA's"), &format!("at most {COST}"), beside(Outcome::mean_cost, COST));
    check(
        named("guarded RL's expired requests beside the tuned HPA's"),
        &format!("at most {EXPIRED}"),
        beside(Outcome::mean_expired, EXPIRED),
    );
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_seven_checks_are_made_on_generated_traces_where_there_are_no_others() {
        let plan = Plan { seeds: 2, training: 300, end: 900, targets: (80, 85), ..Plan::default() };
        let compared: Vec<(String, Option<Comparison>)> = TRACES
            .iter()
            .flat_map(|(name, _, generated, shape)| {
                let trace = Trace::generate(*shape, plan.end, 948.4, 1);
                [((*name).to_owned(), None), ((*generated).to_owned(), Some(compare(&plan, &trace, &mut |_| {})))]
            })
            .collect();
        let checks = report(&plan, &compared, Path::new("nowhere")).checks;
        assert_eq!(checks.len(), 7);
        assert!(checks.iter().all(|check| check.name.starts_with("generated-") && check.got != "no trace"), "{checks:?}");
    }
}
