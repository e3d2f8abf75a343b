//! `drover dev`: clusters for trials.

pub mod kube;
mod scripts;
pub mod sim;

use std::process::ExitCode;

use clap::Subcommand;

use drover::globals::Format;

/// `drover dev …`.
#[derive(Debug, Subcommand)]
pub enum DevCommand {
    /// Start and stop real Kubernetes control planes on this machine, with simulated or real nodes.
    #[command(subcommand)]
    Kube(kube::KubeCommand),
    /// Serve simulated clusters on loopback.
    Sim(sim::SimArgs),
}

/// Runs the subcommand.
///
/// # Errors
/// A script fails, no port is free, or a directory cannot be created.
pub async fn run(command: DevCommand, format: Format) -> anyhow::Result<ExitCode> {
    match command {
        DevCommand::Kube(command) => kube::run(command, format).await,
        DevCommand::Sim(args) => sim::run(args).await,
    }
}
