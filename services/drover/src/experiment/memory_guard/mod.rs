//! `drover experiment memory-guard`: the paper's jobs on simulated nodes, without a guard, under the paper's rule and under ours.

mod checks;
mod pictures;
mod plan;
mod tables;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use drover_memguard::experiment::{Sample, Task, run as run_tasks};
use drover_report::Report;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Common, finish};
use crate::cli::Format;
use plan::Plan;

/// `drover experiment memory-guard`.
#[derive(Debug, Args)]
#[command(after_help = "\
Runs some 17,000 simulated workflows with 30 seeds: eight minutes of one core in a development build.

Example:
  drover experiment memory-guard --out memory-guard/")]
pub struct MemoryGuardArgs {
    /// What every experiment takes.
    #[command(flatten)]
    pub common: Common,
    /// Runs of each setting.
    #[arg(long, default_value_t = 30, value_name = "N")]
    pub seeds: u64,
}

/// Runs it.
pub fn run(args: &MemoryGuardArgs, format: Format) -> Result<ExitCode> {
    ensure!(args.seeds >= 1, "--seeds must be at least 1");
    ensure!(args.common.seed < 1 << 31, "--seed must be below {}", 1_u64 << 31);
    let plan = Plan::new(args.common.seed, args.seeds);
    let bar = ProgressBar::new(plan.runs());
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left")?);
    let results = plan.carry_out(&bar);
    bar.finish_and_clear();
    finish(&report(&results), &args.common, format)
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
fn with_bar(tasks: &[Task], bar: &ProgressBar) -> Vec<Sample> {
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
            let svg = chart.svg().unwrap();
            assert!(svg.contains("</svg>") && chart.series.iter().all(|series| !series.points.is_empty()), "{}", chart.name);
        }
        assert!(report.checks.iter().all(|check| !check.got.contains("NaN")), "{:?}", report.checks);
    }
}
