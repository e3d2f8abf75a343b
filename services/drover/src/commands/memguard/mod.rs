//! `drover memguard …`: the memory guard of the nodes.

mod agent;
mod simulate;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

pub use agent::ask;

use crate::cli::Format;

/// `drover memguard …`.
#[derive(Debug, Subcommand)]
pub enum MemguardCommand {
    /// Run jobs that allocate on simulated nodes, under one policy or all, and say what came of it.
    Simulate(Box<simulate::SimulateArgs>),
    /// What the agent of this node sees, holds and why.
    Status(agent::AgentArgs),
    /// Why one container is held or left alone.
    Explain(agent::ExplainArgs),
}

/// Runs it.
pub fn run(command: MemguardCommand, format: Format) -> Result<ExitCode> {
    match command {
        MemguardCommand::Simulate(args) => simulate::run(&args, format),
        MemguardCommand::Status(args) => agent::status(&args, format),
        MemguardCommand::Explain(args) => agent::explain(&args, format),
    }
}
