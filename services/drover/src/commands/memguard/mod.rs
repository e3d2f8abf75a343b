//! `drover memguard …`: the memory guard of the nodes.

mod simulate;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::cli::Format;

/// `drover memguard …`.
#[derive(Debug, Subcommand)]
pub enum MemguardCommand {
    /// Run jobs that allocate on simulated nodes, under one policy or all, and say what came of it.
    Simulate(Box<simulate::SimulateArgs>),
}

/// Runs it.
pub fn run(command: MemguardCommand, format: Format) -> Result<ExitCode> {
    match command {
        MemguardCommand::Simulate(args) => simulate::run(&args, format),
    }
}
