//! `drover experiment`: runs an algorithm over a paper's settings and reports the results beside the expected ones.
//!
//! One file per experiment, which reads arguments and files, shows progress and makes a [`Report`]. The computations are in lab/groups,
//! lab/autoscaling, lab/memguard and lab/relocation; lab/node runs real containers.

mod autoscaling;
mod groups;
mod interruption;
mod memory_guard;
mod redistribution;
mod relocation;
mod replay;
mod roadef;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use drover_report::Report;
use tokio::runtime::Runtime;

use crate::formats::printed;
use drover::globals::Format;

/// `drover experiment …`.
#[derive(Debug, Subcommand)]
pub enum ExperimentCommand {
    /// Compare the RL-HPA paper's cases a to e with a tuned HPA, KPA, fixed numbers of pods and the learner with safety rules.
    Autoscaling(autoscaling::AutoscalingArgs),
    /// Compare the policies of group placement with the optimum, and evaluate CGS-DDPG as its paper does.
    Groups(groups::GroupsArgs),
    /// Count the requests that fail while an app moves, beside deleting first and beside waiting for Running only.
    Interruption(interruption::InterruptionArgs),
    /// Compare the memory guard paper's rule with Drover's on the paper's settings: restarts, workflow time, waiting.
    MemoryGuard(memory_guard::MemoryGuardArgs),
    /// Measure how full private and public clusters are, with and without provider priority and migration, as the relocation paper does.
    Occupancy(relocation::occupancy::OccupancyArgs),
    /// Measure how long a newcomer takes by the number of applications that move for it, by stage.
    Redistribution(redistribution::RedistributionArgs),
    /// Compare the applications that are rejected without migration, by the relocation paper's ways, by Drover, and at best.
    Rejection(relocation::rejection::RejectionArgs),
    /// Let applications come and go for days on members with prices, and compare cost, rejections and moves under several policies.
    Replay(replay::ReplayArgs),
    /// Run the search of group placement on instances of the ROADEF/EURO challenge 2012.
    Roadef(roadef::RoadefArgs),
}

/// Options of every experiment.
#[derive(Debug, Args)]
pub struct Common {
    /// First seed; the same seed gives the same result.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory for the report as JSON, a CSV per table and an SVG per chart.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Exit with 1 if a check fails.
    #[arg(long)]
    pub strict: bool,
}

/// Runs an experiment and delivers its report; the exit code of the command.
///
/// # Errors
/// An argument or a file is wrong, or a part of the experiment cannot be started.
pub fn run(command: ExperimentCommand, format: Format) -> Result<ExitCode> {
    printed(format)?;
    match command {
        ExperimentCommand::Autoscaling(args) => autoscaling::run(&args, format),
        ExperimentCommand::Groups(args) => groups::run(&args, format),
        ExperimentCommand::Interruption(args) => interruption::run(args, format),
        ExperimentCommand::MemoryGuard(args) => Runtime::new()?.block_on(memory_guard::run(&args, format)),
        ExperimentCommand::Occupancy(args) => relocation::occupancy::run(&args, format),
        ExperimentCommand::Redistribution(args) => redistribution::run(args, format),
        ExperimentCommand::Rejection(args) => relocation::rejection::run(&args, format),
        ExperimentCommand::Replay(args) => replay::run(&args, format),
        ExperimentCommand::Roadef(args) => roadef::run(&args, format),
    }
}

/// Prints the report and writes its files; the exit code of the command.
///
/// # Errors
/// A file cannot be written.
pub fn finish(report: &Report, common: &Common, format: Format) -> Result<ExitCode> {
    report.deliver(common.out.as_deref(), printed(format)?)?;
    Ok(if common.strict && !report.ok() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
