//! `drover memguard …`: the memory guard of the nodes.

mod agent;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

pub use agent::ask;

use crate::cli::Format;
use crate::lab::LabArgs;

/// `drover memguard …`.
#[derive(Debug, Subcommand)]
pub enum MemguardCommand {
    /// Run jobs that allocate on simulated nodes, under one policy or all, and say what came of it.
    Simulate(LabArgs),
    /// What the agent of this node sees, holds and why.
    Status(agent::AgentArgs),
    /// Why one container is held or left alone.
    Explain(agent::ExplainArgs),
}

impl MemguardCommand {
    /// The command's name if `drover-lab` runs it.
    pub fn of_lab(&self) -> Option<&'static str> {
        matches!(self, Self::Simulate(_)).then_some("memguard simulate")
    }
}

/// Runs it.
pub fn run(command: MemguardCommand, format: Format) -> Result<ExitCode> {
    match command {
        MemguardCommand::Simulate(_) => Ok(ExitCode::SUCCESS), // drover-lab has run
        MemguardCommand::Status(args) => agent::status(&args, format),
        MemguardCommand::Explain(args) => agent::explain(&args, format),
    }
}
