//! `drover bench`: throughput, latency, memory and CPU of Drover on this machine, each beside its target.
//!
//! One file per benchmark. A benchmark starts its own services, Postgres (with fsync) and members, each in a process of its own where its
//! cost is measured separately, and stops them at the end. [`Size::Small`] only shows that everything works: its figures mean nothing and
//! its checks are left out.
//!
//! The report includes what figures depend on (speed of the disk, load of the machine), and rates are compared with a baseline of the same
//! run.

mod agent;
pub(crate) mod agents;
mod autoscale;
mod bare;
mod burst;
pub(crate) mod cleanup;
mod cores;
mod decisions;
mod fleet;
mod idle;
mod load;
pub(crate) mod machine;
mod memory_guard;
mod newcomers;
mod plan;
pub(crate) mod planes;
pub(crate) mod process;
mod real;
mod reports;
mod restart;
mod search;
mod security;
mod speed;
pub(crate) mod stack;
mod traffic;
pub(crate) mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use drover_report::{Report, percentile};

use crate::formats::printed;
use drover::globals::Format;

/// `drover bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  drover bench\n  drover bench decisions plan --strict\n  drover bench latency rollout --out bench/\n  drover bench --size small"
)]
pub struct BenchArgs {
    /// What to measure [default: everything].
    #[arg(value_enum, value_name = "NAME")]
    pub names: Vec<Measure>,
    /// Scale of the benchmarks.
    #[arg(long, value_enum, default_value_t = Size::Full)]
    pub size: Size,
    /// Directory for the report as JSON, a CSV per table and an SVG per chart.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Exit with 1 if a target is missed.
    #[arg(long)]
    pub strict: bool,
}

/// The benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Durable placement decisions per second over REST, compared with single-row commits on the same Postgres.
    Decisions,
    /// What tokens and mutual TLS cost: decisions and documents with and without them.
    Security,
    /// Time to plan the relocation of some of 1,000 candidates.
    Plan,
    /// How many plans of 14 candidates that just fit are found within the time limit of plans, and with how many moves.
    Search,
    /// 1,000 apps deployed at the same time, until all are Ready.
    Burst,
    /// 1, 5, 20 and 50 newcomers at the same time on a full cluster: how many are placed, with how many moves, and how fast.
    Newcomers,
    /// Memory and CPU of `drover up` at rest.
    Idle,
    /// One app deployed to 100 of 1,000 members, before and after 1,000 other apps; then memory and CPU at rest.
    Fleet,
    /// CPU that the reports of agents in 1,000 members take.
    Reports,
    /// Restart of all services with 1,000 apps on each of 100 members.
    Restart,
    /// Time from instantiate until the objects are in three real control planes, at a steady rate, beside a bare client.
    Latency,
    /// 200 apps deployed at the same time to three real control planes, beside a bare client.
    Rollout,
    /// Requests per second, latency and CPU per request of the data path, beside HAProxy and no proxy.
    Traffic,
    /// Speed of the autoscaler's algorithms: KPA decisions per second, Q-learning training.
    Autoscale,
    /// Memory and CPU of the autoscaler's agent with 200 workloads on a real control plane.
    Autoscaler,
    /// Memory and CPU of the memory guard's agent with 100 containers.
    MemoryGuard,
    /// Memory and CPU of both agents as Drover pushes them, in pods of a real node; needs root.
    Agents,
}

/// Scale of the benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// The scale for which targets are given.
    Full,
    /// As little as possible, to show that everything works.
    Small,
}

impl Size {
    /// Chooses the value for this size.
    pub fn of<T>(self, full: T, small: T) -> T {
        match self {
            Self::Full => full,
            Self::Small => small,
        }
    }
}

/// Runs benchmarks. Leaves no process and no directory behind, even when it is interrupted.
///
/// # Errors
/// A part cannot be started, or a benchmark fails.
pub fn run(args: BenchArgs, format: Format) -> Result<ExitCode> {
    printed(format)?;
    cleanup::run(measure(args, format))
}

async fn measure(args: BenchArgs, format: Format) -> Result<ExitCode> {
    let names = if args.names.is_empty() { Measure::value_variants().to_vec() } else { args.names.clone() };
    let mut report = Report::new("bench");
    report.tables.push(machine::describe().await?);
    for name in names {
        let word = name.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let (began, load) = (Instant::now(), machine::load());
        eprintln!("{word} …");
        let measured = match name {
            Measure::Decisions => decisions::run(args.size, &mut report).await,
            Measure::Security => security::run(args.size, &mut report).await,
            Measure::Plan => plan::run(args.size, &mut report).await,
            Measure::Search => search::run(args.size, &mut report),
            Measure::Burst => burst::run(args.size, &mut report).await,
            Measure::Newcomers => newcomers::run(args.size, &mut report).await,
            Measure::Idle => idle::run(args.size, &mut report).await,
            Measure::Fleet => fleet::run(args.size, &mut report).await,
            Measure::Reports => reports::run(args.size, &mut report).await,
            Measure::Restart => restart::run(args.size, &mut report).await,
            Measure::Latency => real::latency(args.size, &mut report).await,
            Measure::Rollout => real::rollout(args.size, &mut report).await,
            Measure::Traffic => traffic::run(args.size, &mut report).await,
            Measure::Autoscale => autoscale::run(args.size, &mut report),
            Measure::Autoscaler => agent::run(args.size, &mut report).await,
            Measure::MemoryGuard => memory_guard::run(args.size, &mut report).await,
            Measure::Agents => agents::run(args.size, &mut report).await,
        };
        measured.with_context(|| format!("{word} could not be measured"))?;
        let took = began.elapsed().as_secs_f64();
        report.finding(format!("{word}: took {took:.0} s; load of the machine {load} before, {} after", machine::load()));
    }
    if args.size == Size::Small {
        report.checks.clear();
    }
    report.deliver(args.out.as_deref(), printed(format)?)?;
    Ok(if args.strict && !report.ok() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// p50, p90, p99 and maximum of durations, in milliseconds.
fn spread(samples: &[Duration]) -> [f64; 4] {
    let ms: Vec<f64> = samples.iter().map(|sample| sample.as_secs_f64() * 1e3).collect();
    [0.5, 0.9, 0.99, 1.0].map(|share| percentile(&ms, share))
}

/// A number as a cell of a table, with a precision that fits its size.
fn cell(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}
