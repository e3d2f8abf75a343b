//! `drover memguard simulate`: runs the model of the memory guard under given assumptions and prints a table.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use drover_lab_memguard::experiment::{Sample, SimulationTask, published, run as run_tasks, safety};
use drover_lab_memguard::simulate::ClusterModel;
use drover_memguard::{Guard, Policy};
use drover_report::{Interval, Report, Table};
use serde::de::DeserializeOwned;

use drover::globals::Format;
use drover::output;

/// `drover memguard simulate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover memguard simulate --size 4 --oversubscription 140
  drover memguard simulate --show-world > world.yaml     # all assumptions, to be edited
  drover memguard simulate --world world.yaml --policy gate-bank --seeds 30")]
pub struct SimulateArgs {
    /// Policy; may be repeated [default: all].
    #[arg(long = "policy", value_enum, value_name = "POLICY")]
    pub policies: Vec<Name>,
    /// Memory limit of each job in GB; there are as many jobs as make 200 GB in all.
    #[arg(long, default_value_t = 4, value_name = "GB", value_parser = clap::value_parser!(u32).range(1..=31))]
    pub size: u32,
    /// Sum of the limits over sum of the requests, in percent.
    #[arg(long, default_value_t = 140, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub oversubscription: u32,
    /// YAML or JSON file with assumptions, instead of --size and --oversubscription; assumptions not named in it keep their defaults.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "oversubscription"])]
    pub world: Option<PathBuf>,
    /// YAML or JSON file with the settings of a guard (policy and safety rules), which is compared with no guard.
    #[arg(long, value_name = "FILE", conflicts_with = "policies")]
    pub guard: Option<PathBuf>,
    /// Number of runs of each policy, each with a seed of its own.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: u64,
    /// First seed; the same seed gives the same result.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1 << 31))]
    pub seed: u64,
    /// Print the assumptions and exit.
    #[arg(long)]
    pub show_world: bool,
    /// Print the settings of the guard of the first --policy (gate-bank if none is given) and exit.
    #[arg(long)]
    pub show_guard: bool,
}

/// Policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// No guard.
    None,
    /// The paper's rule as it was published.
    Paper,
    /// Banker's rule on the distance to the limit.
    Bank,
    /// A gate before the start, and the bank.
    GateBank,
}

impl Name {
    const ALL: [Self; 4] = [Self::None, Self::Paper, Self::Bank, Self::GateBank];

    fn text(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Paper => "paper",
            Self::Bank => "bank",
            Self::GateBank => "gate-bank",
        }
    }

    fn guard(self) -> Option<Guard> {
        match Policy::by_name(self.text())? {
            Policy::None => None,
            Policy::Paper(settings) => Some(published(settings)),
            policy => Some(Guard { policy, safety: safety() }),
        }
    }
}

/// Simulates the guards and prints the table; or prints the model or a guard, if that was asked for.
///
/// # Errors
/// A file cannot be read, or its model cannot be simulated.
pub fn run(args: &SimulateArgs, format: Format) -> Result<ExitCode> {
    let world = match &args.world {
        Some(path) => read(path)?,
        None => ClusterModel::paper(args.size, args.oversubscription),
    };
    if let Some(problem) = world.problem() {
        bail!("these assumptions cannot be simulated: {problem}");
    }
    if args.show_world {
        print_document(&world, format)?;
        return Ok(ExitCode::SUCCESS);
    }
    let guards = guards(args)?;
    if args.show_guard {
        let first = args.policies.first().copied().unwrap_or(Name::GateBank);
        let shown = if args.guard.is_some() { guards.into_iter().find_map(|(_, guard)| guard) } else { first.guard() };
        print_document(&shown.context("there is no guard to show: name a --policy other than none")?, format)?;
        return Ok(ExitCode::SUCCESS);
    }
    let tasks: Vec<SimulationTask> = guards
        .iter()
        .map(|(_, guard)| SimulationTask { model: world.clone(), guard: guard.clone(), first: args.seed, seeds: args.seeds })
        .collect();
    let samples = run_tasks(&tasks, &|| {});
    let mut report = Report::new("memguard-simulate");
    report.tables.push(table(&guards, &samples));
    let printed = crate::formats::printed(format)?;
    report.deliver(None, printed)?;
    Ok(ExitCode::SUCCESS)
}

fn guards(args: &SimulateArgs) -> Result<Vec<(String, Option<Guard>)>> {
    if let Some(path) = &args.guard {
        let guard: Guard = read(path)?;
        ensure!(guard.safety.levers.len() <= 2, "{}: a lever is named twice", path.display());
        return Ok(vec![("none".to_owned(), None), (guard.policy.name().to_owned(), Some(guard))]);
    }
    let names = if args.policies.is_empty() { &Name::ALL[..] } else { &args.policies };
    Ok(names.iter().map(|name| (name.text().to_owned(), name.guard())).collect())
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_yaml::from_str(&text)
        .with_context(|| format!("{} has another format than expected; --show-world and --show-guard print examples", path.display()))
}

fn print_document<T: serde::Serialize>(value: &T, format: Format) -> Result<()> {
    let text = if format == Format::Json { serde_json::to_string_pretty(value)? } else { serde_yaml::to_string(value)? };
    output::write_stdout(&text)
}

fn table(guards: &[(String, Option<Guard>)], samples: &[Sample]) -> Table {
    let heads = [
        "policy",
        "restarts per container",
        "workflow [s]",
        "execution [s]",
        "longest [s]",
        "paused [s]",
        "at the gate [s]",
        "sacrificed",
        "unfinished",
    ];
    let mut table = Table::new("policies", heads);
    for ((name, _), sample) in guards.iter().zip(samples) {
        let seconds = |measure: fn(&drover_lab_memguard::simulate::Outcome) -> f64| format!("{:.0}", sample.mean(measure));
        let restarts = Interval::of(&sample.each(|outcome| outcome.restart_ratio()));
        table.row([
            name.clone(),
            format!("{:.2} ± {:.2}", restarts.mean, restarts.half()),
            seconds(|outcome| outcome.workflow),
            seconds(|outcome| outcome.execution),
            seconds(|outcome| outcome.longest_execution),
            seconds(|outcome| outcome.paused),
            seconds(|outcome| outcome.gated),
            format!("{:.1}", sample.mean(|outcome| f64::from(outcome.sacrifices))),
            format!("{:.1}", sample.mean(|outcome| outcome.unfinished as f64)),
        ]);
    }
    table
}
