//! `drover experiment redistribution`: how long a newcomer takes by the number of applications that move for it, by stage.
//!
//! Everything is real but the nodes, and with `--members sim` the API servers: `drover up` of the same build, in processes of its own. What is
//! started is ended however the command ends (see `bench/cleanup.rs`).

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use drover_api::operations::{Operation, OperationState, OperationStep};
use drover_report::{Chart, Check, Interval, Report, Slope, Table};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Common, finish};
use crate::bench::planes::Planes;
use crate::bench::process::Members as Wanted;
use crate::bench::stack::{Stack, folder};
use crate::bench::world::{self, App, Pod};
use crate::bench::{cleanup, machine};
use drover::globals::Format;

/// `drover experiment redistribution`.
#[derive(Debug, Args)]
#[command(after_help = "\
A cluster is full of equal applications, as many as the largest of `--moves`. A newcomer arrives that needs as much as some of them, and so many \
move to two other clusters at the same time. Then one that needs more arrives, and so on. Nothing is drawn, so the seed changes nothing.

Examples:
  drover experiment redistribution
  drover experiment redistribution --members local --rounds 5 --out redistribution/
  drover experiment redistribution --moves 1,8 --start 2")]
pub struct RedistributionArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: Common,
    /// The clusters: simulated, or real control planes on this machine with simulated nodes.
    #[arg(long, value_enum, default_value_t = Kind::Sim)]
    pub members: Kind,
    /// Numbers of applications that move, with commas: at least two different ones up to 100, the largest a divisor of 1000.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub moves: Vec<u32>,
    /// Seconds until a pod is ready, with commas.
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', default_value = "0,2,10", value_parser = clap::value_parser!(u32).range(0..=60))]
    pub start: Vec<u32>,
    /// How often each is measured.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
}

/// The clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Simulated API servers in one process.
    Sim,
    /// Real control planes on this machine, without real nodes.
    Local,
}

/// Clusters: the full one, and two to move to.
const MEMBERS: usize = 3;
/// Millicores of the one node of each.
const NODE: u32 = 1_000;
/// Largest share of the time in which a pod starts that one more move may add. Moves one after the other would add all of it, and more.
const SLOPE: f64 = 0.2;
/// The stages, in their order. Pulling images is part of the second; simulated nodes pull none, and start after the time that is asked for.
const STAGES: [&str; 5] = ["decide, plan, claim", "new copies start", "traffic shifts", "old copies leave", "newcomer starts"];

/// One newcomer.
#[derive(Clone, Debug)]
struct Sample {
    start: u32,
    moves: u32,
    /// Seconds of each of [`STAGES`].
    stages: [f64; STAGES.len()],
}

impl Sample {
    fn total(&self) -> f64 {
        self.stages.iter().sum()
    }
}

/// Measures, and delivers the report; the exit code of the command. Even when it is interrupted, it leaves nothing behind.
///
/// # Errors
/// An option is out of range, a part cannot be started, a request fails, or a file cannot be written.
pub fn run(args: RedistributionArgs, format: Format) -> Result<ExitCode> {
    cleanup::run(measure(args, format))
}

async fn measure(args: RedistributionArgs, format: Format) -> Result<ExitCode> {
    let mut moves = args.moves.clone();
    moves.sort_unstable();
    moves.dedup();
    let most = moves.last().copied().unwrap_or_default();
    ensure!(moves.len() > 1 && NODE.is_multiple_of(most), "--moves are at least two different numbers, the largest a divisor of {NODE}");
    let (described, machine) = (machine::describe().await?, machine::line()?);
    let wanted = Wanted::new(MEMBERS, 1).with_cpu(NODE / 1_000);
    let folder = folder()?;
    let mut planes = Planes::start(args.members == Kind::Local, wanted, folder.path()).await?;
    let stack = Stack::over(folder, planes.simulated.take(), &planes.kubeconfigs, 1, MEMBERS, |_| vec!["all".to_owned()]).await?;
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} newcomers, {elapsed} so far, {eta} left")?;
    let bar = ProgressBar::new(u64::from(args.rounds) * (args.start.len() * moves.len()) as u64).with_style(style);
    let mut samples = Vec::new();
    // The first does not count: with it Drover discovers the APIs of the members.
    newcomer(&stack, "first", 0, 1, most).await?;
    for round in 0..args.rounds {
        for start in &args.start {
            for moves in &moves {
                samples.push(newcomer(&stack, &format!("r{round}-s{start}-m{moves}"), *start, *moves, most).await?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    stack.stop(planes).await?;
    let mut report = report(&samples);
    report.tables.insert(0, described);
    let what = if args.members == Kind::Local { "real control planes" } else { "simulated clusters" };
    report.under(format!("{machine}; {MEMBERS} {what}, {} newcomers of each kind", args.rounds));
    finish(&report, &args.common, format)
}

/// Fills the first member with `most` applications, lets a newcomer arrive that needs as much as `moves` of them, and removes everything.
async fn newcomer(stack: &Stack, name: &str, start: u32, moves: u32, most: u32) -> Result<Sample> {
    let pod = Pod { millicores: NODE / most, start, ..Pod::SMALL };
    let client = &stack.client;
    let victims: Vec<App> = (0..most).map(|at| App { pod, ..App::new(format!("{name}-victim-{at:03}"), only(&[0, 1, 2]), 1) }).collect();
    world::each(victims.len(), async |at| {
        victims[at].prepare(client).await?;
        victims[at].let_move(client).await?;
        victims[at].deploy(client).await
    })
    .await?;
    let newcomer = App { pod, ..App::new(format!("{name}-newcomer"), only(&[0]), moves) };
    newcomer.prepare(client).await?;
    let id = newcomer.instantiate(client).await?;
    let operation = world::ended(client, &id).await?;
    if operation.state != OperationState::Succeeded {
        bail!("{}: {} {:?}", operation.subject, operation.message, operation.reasons);
    }
    ensure!(operation.moves.len() == moves as usize, "{} applications moved instead of {moves}", operation.moves.len());
    let child = operation.children.first().context("the operation has started no relocation")?;
    let relocation: Operation = client.get(&format!("/v2/operations/{child}")).await?;
    let sample = Sample { start, moves, stages: stages(&operation, &relocation)? };
    newcomer.terminate(client).await?;
    world::each(victims.len(), async |at| victims[at].terminate(client).await).await?;
    Ok(sample)
}

fn only(members: &[usize]) -> Value {
    let clusters = members.iter().map(|at| json!({"clusterProvider": world::provider(*at), "cluster": world::cluster(*at)}));
    json!({"anyOf": clusters.collect::<Vec<Value>>()})
}

/// The seconds of each stage, from the journals of the newcomer's operation and of the relocation that it has started.
fn stages(operation: &Operation, relocation: &Operation) -> Result<[f64; STAGES.len()]> {
    let ended = operation.finished_at.as_deref().context("it has not ended")?;
    let prepare = of(relocation, "prepare")?;
    let moments = [
        time(&operation.created_at)?,
        prepare.iter().map(|step| time(&step.started_at)).collect::<Result<Vec<f64>>>()?.into_iter().fold(f64::INFINITY, f64::min),
        finished(&prepare)?,
        finished(&of(relocation, "cut_over")?)?,
        finished(&of(relocation, "old_gone")?)?,
        time(ended)?,
    ];
    Ok(std::array::from_fn(|stage| moments[stage + 1] - moments[stage]))
}

/// The attempts of a step.
fn of<'o>(operation: &'o Operation, name: &str) -> Result<Vec<&'o OperationStep>> {
    let steps: Vec<_> = operation.steps.iter().filter(|step| step.name == name && step.direction == "do").collect();
    ensure!(!steps.is_empty(), "{} {} has no step {name}", operation.kind, operation.id);
    Ok(steps)
}

fn finished(steps: &[&OperationStep]) -> Result<f64> {
    let times = steps.iter().filter_map(|step| step.finished_at.as_deref()).map(time).collect::<Result<Vec<f64>>>()?;
    times.into_iter().reduce(f64::max).context("a step has not ended")
}

/// Seconds since the epoch.
fn time(text: &str) -> Result<f64> {
    let at: Timestamp = text.parse().with_context(|| format!("{text} is no time"))?;
    Ok(at.as_nanosecond() as f64 / 1e9)
}

fn report(samples: &[Sample]) -> Report {
    let mut report = Report::new("redistribution");
    let mut starts: Vec<u32> = samples.iter().map(|sample| sample.start).collect();
    starts.sort_unstable();
    starts.dedup();
    let heads = ["pods start in [s]", "moves", "n", "until it is Ready [s]"].into_iter().chain(STAGES);
    let mut table = Table::new("redistribution", heads);
    let mut slopes = Table::new("slope", ["pods start in [s]", "n", "one more move [s]", "95 % interval", "one move [s]"]);
    let mut chart = Chart::lines("redistribution", "Time by number of moves (means with 95 % intervals)", "moves", "until Ready [s]");
    for start in starts {
        let of: Vec<&Sample> = samples.iter().filter(|sample| sample.start == start).collect();
        let mut moves: Vec<u32> = of.iter().map(|sample| sample.moves).collect();
        moves.sort_unstable();
        moves.dedup();
        let mut points = Vec::new();
        for moves in moves {
            let of: Vec<&&Sample> = of.iter().filter(|sample| sample.moves == moves).collect();
            let interval = |measure: &dyn Fn(&Sample) -> f64| Interval::of(&of.iter().map(|sample| measure(sample)).collect::<Vec<_>>());
            let total = interval(&Sample::total);
            points.push((f64::from(moves), total));
            let mut row = vec![start.to_string(), moves.to_string(), of.len().to_string(), total.to_string()];
            row.extend((0..STAGES.len()).map(|stage| format!("{:.2}", interval(&|sample| sample.stages[stage]).mean)));
            table.row(row);
        }
        let slope = Slope::of(&of.iter().map(|sample| (f64::from(sample.moves), sample.total())).collect::<Vec<_>>());
        let one = points.first().map_or(f64::NAN, |(_, total)| total.mean);
        slopes.row([
            start.to_string(),
            of.len().to_string(),
            format!("{:.3}", slope.mean),
            format!("{:.3} to {:.3}", slope.low, slope.high),
            format!("{one:.2}"),
        ]);
        report.finding(format!(
            "pods that start in {start} s: one more move adds {:.3} s (95 %: {:.3} to {:.3}) to the {one:.1} s of the fewest",
            slope.mean, slope.low, slope.high
        ));
        // Pods that start at once leave nothing to wait for: what a move adds then is work.
        if start > 0 {
            report.checks.push(Check::at_most(
                format!("pods that start in {start} s: one more move (upper end of its interval), beside the start of a pod"),
                SLOPE,
                slope.high / f64::from(start),
                "times; 1 or more if one after the other",
            ));
        }
        chart = chart.intervals(format!("{start} s"), &points);
    }
    report.tables = vec![table, slopes];
    report.charts.push(chart);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(each: f64) -> Vec<Sample> {
        let one = |(moves, round): (u32, u32)| Sample {
            start: 2,
            moves,
            stages: [0.1, 2.0 + each * f64::from(moves), 0.1, 0.5, 2.0 + 0.01 * f64::from(round)],
        };
        [1, 2, 4, 8].into_iter().flat_map(|moves| (0..3).map(move |round| (moves, round))).map(one).collect()
    }

    #[test]
    fn report_has_a_row_for_each_number_of_moves_and_a_slope() {
        let report = report(&samples(0.02));
        assert_eq!((report.tables[0].rows.len(), report.tables[1].rows.len()), (4, 1));
        assert_eq!(report.tables[1].rows[0][2], "0.020");
        assert!(report.ok() && report.charts[0].svg("").unwrap().contains("</svg>"));
    }

    #[test]
    fn check_fails_where_moves_are_made_one_after_the_other() {
        assert!(!report(&samples(2.5)).ok());
    }
}
