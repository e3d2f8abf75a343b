//! `drover autoscale`: the autoscaler's decisions offline. No Drover need run; only files, stdin and stdout.

mod decide;
mod input;
mod simulate;
mod train;

use anyhow::Result;
use clap::Subcommand;

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
}

/// Runs it.
pub fn run(command: AutoscaleCommand, format: Format) -> Result<()> {
    match command {
        AutoscaleCommand::Decide(args) => decide::run(&args),
        AutoscaleCommand::Simulate(args) => simulate::run(&args, format),
        AutoscaleCommand::Train(args) => train::run(&args),
    }
}
