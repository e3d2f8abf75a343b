//! `drover experiment`: runs a pure core over a paper's settings and says what came out, beside what was to be reached.
//!
//! One file per experiment. It reads arguments and files, shows progress, and makes a [`Report`]; what is computed lives in the pure crates,
//! and what runs real containers in services/memory-guard.

mod autoscaling;
mod groups;
mod memory_guard;
mod roadef;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use drover_report::Report;

use drover::cli::Format;

/// `drover experiment …`.
#[derive(Debug, Subcommand)]
pub enum ExperimentCommand {
    /// The RL-HPA paper's cases a to e beside a tuned HPA, KPA, fixed numbers and the learner with its guards.
    Autoscaling(autoscaling::AutoscalingArgs),
    /// Group placement: every policy beside the optimum, and CGS-DDPG as its paper evaluates it.
    Groups(groups::GroupsArgs),
    /// The memory guard paper's settings under its rule and under ours: restarts, workflow time, waiting.
    MemoryGuard(memory_guard::MemoryGuardArgs),
    /// The search of group placement on instances of the ROADEF/EURO challenge 2012.
    Roadef(roadef::RoadefArgs),
}

/// What every experiment takes.
#[derive(Debug, Args)]
pub struct Common {
    /// First seed; the same seed gives the same result.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory for a CSV per table and an SVG per chart.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Exit with 1 when a check falls short.
    #[arg(long)]
    pub strict: bool,
}

/// Runs it.
pub async fn run(command: ExperimentCommand, format: Format) -> Result<ExitCode> {
    match command {
        ExperimentCommand::Autoscaling(args) => autoscaling::run(&args, format),
        ExperimentCommand::Groups(args) => groups::run(&args, format),
        ExperimentCommand::MemoryGuard(args) => memory_guard::run(&args, format).await,
        ExperimentCommand::Roadef(args) => roadef::run(&args, format),
    }
}

/// Prints the report, writes its files, and says how it went.
pub fn finish(report: &Report, common: &Common, format: Format) -> Result<ExitCode> {
    let printed = if format == Format::Json { drover_report::Format::Json } else { drover_report::Format::Text };
    report.deliver(common.out.as_deref(), printed)?;
    Ok(if common.strict && !report.ok() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
