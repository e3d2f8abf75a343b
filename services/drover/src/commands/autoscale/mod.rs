//! `drover autoscale`: the autoscaler's decisions, offline (files, stdin and stdout) and of a cluster's agent. No Drover need run.

mod cluster;
mod decide;
mod file;

use anyhow::Result;
use clap::Subcommand;

pub use cluster::{PolicyArgs, TableCommand};
pub use decide::DecideArgs;
pub use file::{read, read_table};

use crate::cli::Format;
use crate::lab::LabArgs;

/// `drover autoscale …`.
#[derive(Debug, Subcommand)]
pub enum AutoscaleCommand {
    /// Decide on observations: JSON lines in, JSON lines out, state kept from line to line.
    Decide(DecideArgs),
    /// Let every policy scale the same load in the queueing simulator.
    Simulate(LabArgs),
    /// Train a Q-table in the queueing simulator.
    Train(LabArgs),
    /// What a cluster's agent decided last for a ScalingPolicy, and why; -o wide: everything it decided by.
    Explain(PolicyArgs),
    /// What a policy learned: export, list, roll back.
    #[command(subcommand)]
    Table(TableCommand),
}

impl AutoscaleCommand {
    /// The command's name if `drover-lab` runs it.
    pub fn of_lab(&self) -> Option<&'static str> {
        match self {
            Self::Simulate(_) => Some("autoscale simulate"),
            Self::Train(_) => Some("autoscale train"),
            _ => None,
        }
    }
}

/// Runs it.
pub async fn run(command: AutoscaleCommand, format: Format) -> Result<()> {
    match command {
        AutoscaleCommand::Decide(args) => decide::run(&args),
        AutoscaleCommand::Simulate(_) | AutoscaleCommand::Train(_) => Ok(()), // drover-lab has run
        AutoscaleCommand::Explain(args) => cluster::explain(&args, format).await,
        AutoscaleCommand::Table(command) => cluster::table(command, format).await,
    }
}
