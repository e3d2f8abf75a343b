//! `drover memguard …`: the memory guard of the nodes.

mod agent;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

pub use agent::ask;

use crate::globals::Format;
use crate::lab::LabArgs;

/// `drover memguard …`.
#[derive(Debug, Subcommand)]
pub enum MemguardCommand {
    /// Run jobs that allocate on simulated nodes, under one policy or all, and compare the outcomes.
    Simulate(LabArgs),
    /// Show what the agent of this node measures, which containers it holds, and why.
    Status(agent::AgentArgs),
    /// Explain why a container is held or not.
    Explain(agent::ExplainArgs),
}

impl MemguardCommand {
    /// The command's name if it is one of those that `drover-lab` runs.
    pub fn of_lab(&self) -> Option<&'static str> {
        matches!(self, Self::Simulate(_)).then_some("memguard simulate")
    }
}

/// Runs the subcommand; the exit code of the command. `simulate` is run by `drover-lab`.
///
/// # Errors
/// No agent answers, or there is no such container.
pub fn run(command: MemguardCommand, format: Format) -> Result<ExitCode> {
    match command {
        MemguardCommand::Simulate(_) => Ok(ExitCode::SUCCESS), // run by drover-lab
        MemguardCommand::Status(args) => agent::status(&args, format),
        MemguardCommand::Explain(args) => agent::explain(&args, format),
    }
}
