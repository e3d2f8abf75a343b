//! `drover autoscale`: the autoscaler's decisions, offline (files, stdin and stdout) and by a cluster's agent. Needs no running Drover.

mod cluster;
mod decide;
mod file;
mod measure;
mod ramp;

use anyhow::Result;
use clap::Subcommand;

pub use cluster::{PolicyArgs, TableCommand};
pub use decide::DecideArgs;
pub use file::{read, read_table};
pub use measure::MeasureArgs;

use crate::globals::Format;
use crate::lab::LabArgs;

/// `drover autoscale …`.
#[derive(Debug, Subcommand)]
pub enum AutoscaleCommand {
    /// Decide on observations: reads and writes JSON lines, and keeps state from line to line.
    Decide(DecideArgs),
    /// Let every policy scale the same load in the queueing simulator.
    Simulate(LabArgs),
    /// Train a Q-table in the queueing simulator.
    Train(LabArgs),
    /// Measure a Deployment by a load: how many requests its pods serve and how long one takes to start, as the simulator reads it.
    Measure(Box<MeasureArgs>),
    /// Show what a cluster's agent decided last for a ScalingPolicy and why; -o wide shows all inputs.
    Explain(PolicyArgs),
    /// Export, list and roll back the Q-tables that a policy learned.
    #[command(subcommand)]
    Table(TableCommand),
}

impl AutoscaleCommand {
    /// The command's name if it is one of those that `drover-lab` runs.
    pub fn of_lab(&self) -> Option<&'static str> {
        match self {
            Self::Simulate(_) => Some("autoscale simulate"),
            Self::Train(_) => Some("autoscale train"),
            _ => None,
        }
    }
}

/// Runs the subcommand. Those of the laboratory are run by `drover-lab`.
///
/// # Errors
/// A file cannot be read or used, or a request to the cluster fails.
pub async fn run(command: AutoscaleCommand, format: Format) -> Result<()> {
    match command {
        AutoscaleCommand::Decide(args) => decide::run(&args),
        AutoscaleCommand::Simulate(_) | AutoscaleCommand::Train(_) => Ok(()), // run by drover-lab
        AutoscaleCommand::Measure(args) => measure::run(&args, format).await,
        AutoscaleCommand::Explain(args) => cluster::explain(&args, format).await,
        AutoscaleCommand::Table(command) => cluster::table(command, format).await,
    }
}
