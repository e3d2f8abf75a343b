//! `drover dev`: clusters to try things on.

pub mod kube;
mod scripts;

use std::process::ExitCode;

use clap::Subcommand;

use crate::cli::Format;

/// `drover dev …`.
#[derive(Debug, Subcommand)]
pub enum DevCommand {
    /// Real Kubernetes control planes on this machine, with simulated or real nodes.
    #[command(subcommand)]
    Kube(kube::KubeCommand),
}

/// Runs it.
pub async fn run(command: DevCommand, format: Format) -> anyhow::Result<ExitCode> {
    match command {
        DevCommand::Kube(command) => kube::run(command, format).await,
    }
}
