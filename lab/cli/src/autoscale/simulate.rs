//! `drover autoscale simulate`: every policy scales the same load; reports cost and course of each.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use drover_autoscaling::kpa::{KpaMetric, KpaSpec};
use drover_autoscaling::threshold::{MetricSpec, ThresholdSpec};
use drover_autoscaling::{Limits, Policy};
use drover_lab_autoscaling::sim::{Arrivals, Driver, PRICE, Run, SimSpec, drive};
use drover_report::{Chart, Report, Table};

use super::train::{LearnerArgs, trained};
use super::{LoadArgs, SimArgs};
use drover::commands::autoscale::read_table;
use drover::globals::Format;

/// `drover autoscale simulate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover autoscale simulate --shape launch --out pictures/
  drover autoscale simulate --trace load.csv --table table.json --delay 30 -o json")]
pub struct SimulateArgs {
    /// Load.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Workload.
    #[command(flatten)]
    pub sim: SimArgs,
    /// Parameters of the learner.
    #[command(flatten)]
    pub learner: LearnerArgs,
    /// Q-table that the learner starts from [default: one trained on the first quarter of the load, which the comparison leaves out].
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
    /// CPU target of the threshold policy in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(i32).range(1..=1_000))]
    pub target: i32,
    /// Stabilisation window of the threshold policy in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub stabilisation: u32,
    /// Share of the capacity curve that the pods really serve.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub capacity_factor: f64,
    /// Spread arrivals evenly instead of at random.
    #[arg(long)]
    pub even: bool,
    /// Directory for the report as JSON, a CSV per table and an SVG per chart.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Lets every policy scale the load, and delivers the report.
///
/// # Errors
/// A file cannot be read or written, or an option is out of range or contradicts another.
pub fn run(args: &SimulateArgs, format: Format) -> Result<()> {
    let sim = args.sim.spec()?;
    let trace = args.load.load(&sim)?;
    let learner = args.learner.spec(&sim, args.load.seed)?;
    let real = SimSpec { capacity_factor: args.capacity_factor, ..sim.clone() };
    real.check()?;
    let length = trace.rates().len();
    let (table, from) = match &args.table {
        Some(path) => (read_table(path)?, 0),
        None => (trained(&learner, &sim, &trace, args.sim.period, length / 4, 10), length / 4),
    };
    table.check(sim.min_pods, sim.max_pods)?;
    let arrivals = if args.even {
        Arrivals::even(&trace, &real, from, length)
    } else {
        Arrivals::poisson(&trace, &real, from, length, args.load.seed)
    };

    let period = usize::from(args.sim.period);
    let threshold = Policy::Threshold(ThresholdSpec { metrics: vec![MetricSpec::cpu(args.target)], ..ThresholdSpec::default() });
    let limits = Limits { downscale_stabilization: f64::from(args.stabilisation), ..Limits::default() };
    let each = sim.capacity.of(sim.max_pods) / f64::from(sim.max_pods);
    let kpa = Policy::Kpa(KpaSpec { metric: KpaMetric::Rps, target: Some(each), ..KpaSpec::default() });
    let mut drivers: Vec<(String, Driver)> =
        (sim.min_pods.max(1)..=sim.max_pods.min(8)).map(|pods| (format!("always {pods}"), Driver::fixed(pods))).collect();
    drivers.push((format!("threshold {} %", args.target), Driver::policy(threshold, limits, &real, period)));
    drivers.push(("kpa".to_owned(), Driver::policy(kpa, Limits::default(), &real, 2)));
    drivers.push(("qlearning".to_owned(), Driver::policy(Policy::QLearning(learner), Limits::default(), &real, period).with_table(table)));
    let runs: Vec<(String, Run)> = drivers.into_iter().map(|(name, mut driver)| (name, drive(&real, &arrivals, &mut driver))).collect();
    report(&runs, real.penalty, from, args.out.is_some()).deliver(args.out.as_deref(), crate::formats::printed(format)?)
}

/// The report. The course has thousands of rows and is only written to files.
fn report(runs: &[(String, Run)], penalty: f64, from: usize, files: bool) -> Report {
    let mut report = Report::new("autoscale-simulate");
    let cost = |run: &Run| run.totals.cost(penalty);
    if let Some((name, run)) = runs.iter().min_by(|one, other| cost(&one.1).total_cmp(&cost(&other.1))) {
        report.finding(format!(
            "{name} is the cheapest: {:.0} pod-seconds with {:.0} expired requests, from second {from} on",
            cost(run),
            run.totals.expired
        ));
    }
    let mut totals =
        Table::new("totals", ["policy", "cost [pod-s]", "cost [USD]", "pods [pod-s]", "expired [requests]", "served [%]", "CPU [%]"]);
    for (name, run) in runs {
        let (sum, share) = (&run.totals, 100.0 * run.totals.served / run.totals.arrived.max(1.0));
        let usd = sum.cost(penalty) * PRICE;
        totals.row([
            name.clone(),
            format!("{:.0}", sum.cost(penalty)),
            format!("{usd:.5}"),
            format!("{:.0}", sum.pod_seconds),
            format!("{:.0}", sum.expired),
            format!("{share:.2}"),
            format!("{:.0}", 100.0 * sum.cpu()),
        ]);
    }
    report.tables.push(totals);
    let mut course = Table::new("course", ["policy", "t [s]", "load [1/s]", "pods", "ready", "expired [requests]", "cost so far [pod-s]"]);
    let chart = |name: &str, title: &str, unit: &str| Chart::lines(name, title, "time [s]", unit);
    let mut pods = chart("pods", "Pods asked for", "pods");
    let mut expired = chart("expired", "Expired requests so far", "requests");
    let mut costs = chart("cost", "Cost so far", "pod-seconds");
    let mut load = chart("load", "Load", "requests per second");
    for (name, run) in runs {
        let (mut lines, mut spent, mut lost, mut before) = ((Vec::new(), Vec::new(), Vec::new(), Vec::new()), 0.0, 0.0, from as f64);
        for sample in &run.course {
            spent += sample.totals.cost(penalty);
            lost += sample.totals.expired;
            let rate = sample.totals.arrived / (sample.at - before).max(1.0);
            before = sample.at;
            lines.0.push((sample.at, f64::from(sample.pods)));
            lines.1.push((sample.at, lost));
            lines.2.push((sample.at, spent));
            lines.3.push((sample.at, rate));
            let (at, pods, ready) = (format!("{:.0}", sample.at), sample.pods.to_string(), sample.ready.to_string());
            course.row([
                name.clone(),
                at,
                format!("{rate:.1}"),
                pods,
                ready,
                format!("{:.1}", sample.totals.expired),
                format!("{spent:.1}"),
            ]);
        }
        if load.series.is_empty() {
            load = load.series("load", lines.3);
        }
        if !name.starts_with("always") {
            pods = pods.series(name, lines.0);
            expired = expired.series(name, lines.1);
            costs = costs.series(name, lines.2);
        }
    }
    report.charts.extend([load, pods, expired, costs]);
    if files {
        report.tables.push(course);
    }
    report
}
