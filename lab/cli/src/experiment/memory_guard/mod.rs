//! `drover experiment memory-guard`: the paper's jobs on simulated nodes without a guard, under the paper's rule and under Drover's; with
//! `--real` as real containers on this machine.

mod checks;
mod pictures;
mod plan;
mod real;
mod tables;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use drover_lab_memguard::experiment::{Sample, SimulationTask, run as run_tasks};
use drover_report::Report;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Common, finish};
use drover::globals::Format;
use plan::Plan;

/// Default number of seeds of the simulated runs.
const SEEDS: u64 = 30;

/// `drover experiment memory-guard`.
#[derive(Debug, Args)]
#[command(after_help = "\
Runs some 17,000 simulated workflows with 30 seeds: eight minutes of one core in a development build.
With --real it runs twenty workflows of real containers with 5 seeds, as many at once as the machine has pairs of cores: half an
hour on two.

Examples:
  drover experiment memory-guard --out memory-guard/
  sudo drover experiment memory-guard --real --seeds 1 --cycles 10")]
pub struct MemoryGuardArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: Common,
    /// Number of runs of each setting, each with a seed of its own [default: 30; with --real: 5].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: Option<u64>,
    /// Run real containers on a private containerd, with a cgroup of 1 GiB as the node and the real OOM killer; needs root, containerd,
    /// runc, gcc and python3.
    #[arg(long)]
    pub real: bool,
    /// With --real: how often each job allocates and frees its memory.
    #[arg(long, default_value_t = 40, value_name = "N", requires = "real", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub cycles: u32,
}

/// Runs the experiment.
///
/// # Errors
/// An option is out of range, or containers cannot be started.
pub async fn run(args: &MemoryGuardArgs, format: Format) -> Result<ExitCode> {
    let first = args.common.seed;
    ensure!(first < 1 << 31, "--seed must be below {}", 1_u64 << 31);
    let seeds = args.seeds.unwrap_or(if args.real { real::SEEDS } else { SEEDS });
    let report = if args.real {
        let bar = bar(real::runs(seeds))?;
        // The first workflow takes minutes.
        bar.enable_steady_tick(Duration::from_secs(1));
        let trials = real::carry_out(first, seeds, args.cycles, &bar).await;
        bar.finish_and_clear();
        real::report(&trials?)
    } else {
        let plan = Plan::new(first, seeds);
        let bar = bar(plan.runs())?;
        let results = plan.carry_out(&bar);
        bar.finish_and_clear();
        report(&results)
    };
    finish(&report, &args.common, format)
}

fn bar(runs: u64) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {elapsed} so far, {eta} left")?;
    Ok(ProgressBar::new(runs).with_style(style))
}

fn report(results: &plan::Results) -> Report {
    let mut report = Report::new("memory-guard");
    report.findings = tables::findings(results);
    report.tables = tables::all(results);
    report.charts = pictures::all(results);
    report.checks = checks::all(results);
    report
}

/// Runs tasks of the same number of seeds and moves the bar.
fn with_bar(tasks: &[SimulationTask], bar: &ProgressBar) -> Vec<Sample> {
    let each = tasks.first().map_or(0, |task| task.seeds);
    run_tasks(tasks, &|| bar.inc(each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_seeds_fill_every_table_and_chart() {
        let results = Plan::new(1, 2).small().carry_out(&ProgressBar::hidden());
        let report = report(&results);
        assert!(!report.findings.is_empty());
        for table in &report.tables {
            assert!(!table.rows.is_empty(), "{}", table.name);
        }
        for chart in &report.charts {
            let svg = chart.svg("").unwrap();
            assert!(svg.contains("</svg>") && chart.series.iter().all(|series| !series.points.is_empty()), "{}", chart.name);
        }
        assert!(report.checks.iter().all(|check| !check.got.contains("NaN")), "{:?}", report.checks);
    }
}
