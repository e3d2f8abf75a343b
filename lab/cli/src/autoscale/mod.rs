//! `drover autoscale simulate` and `train`: run the queueing simulator over a load. They need no running Drover.

mod input;
mod simulate;
mod train;

use anyhow::Result;
use clap::Subcommand;
use drover::globals::Format;

pub use input::{LoadArgs, SimArgs, read_trace};
pub use simulate::SimulateArgs;
pub use train::TrainArgs;

/// The commands of `drover autoscale` that simulate.
#[derive(Debug, Subcommand)]
pub enum AutoscaleCommand {
    /// Let every policy scale the same load in the queueing simulator.
    Simulate(Box<SimulateArgs>),
    /// Train a Q-table in the queueing simulator.
    Train(Box<TrainArgs>),
}

/// Runs the subcommand.
///
/// # Errors
/// A file cannot be read or written, or an option contradicts another.
pub fn run(command: AutoscaleCommand, format: Format) -> Result<()> {
    match command {
        AutoscaleCommand::Simulate(args) => simulate::run(&args, format),
        AutoscaleCommand::Train(args) => train::run(&args),
    }
}
