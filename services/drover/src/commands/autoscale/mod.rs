//! `drover autoscale`: the autoscaler's decisions, offline (files, stdin and stdout) and of a cluster's agent. No Drover need run.

mod cluster;
mod decide;
mod input;
mod simulate;
mod train;

use anyhow::Result;
use clap::Subcommand;

pub use cluster::{PolicyArgs, TableCommand};
pub use decide::DecideArgs;
pub use input::{LoadArgs, SimArgs, read_trace};
pub use simulate::SimulateArgs;
pub use train::TrainArgs;

use crate::cli::Format;

/// `drover autoscale …`.
#[derive(Debug, Subcommand)]
pub enum AutoscaleCommand {
    /// Decide on observations: JSON lines in, JSON lines out, state kept from line to line.
    Decide(DecideArgs),
    /// Let every policy scale the same load in the queueing simulator.
    Simulate(Box<SimulateArgs>),
    /// Train a Q-table in the queueing simulator.
    Train(Box<TrainArgs>),
    /// What a cluster's agent decided last for a ScalingPolicy, and why; -o wide: everything it decided by.
    Explain(PolicyArgs),
    /// What a policy learned: export, list, roll back.
    #[command(subcommand)]
    Table(TableCommand),
}

/// Runs it.
pub async fn run(command: AutoscaleCommand, format: Format) -> Result<()> {
    match command {
        AutoscaleCommand::Decide(args) => decide::run(&args),
        AutoscaleCommand::Simulate(args) => simulate::run(&args, format),
        AutoscaleCommand::Train(args) => train::run(&args),
        AutoscaleCommand::Explain(args) => cluster::explain(&args, format).await,
        AutoscaleCommand::Table(command) => cluster::table(command, format).await,
    }
}
