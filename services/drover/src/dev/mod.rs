//! `drover dev`: clusters to try things on.

use std::process::ExitCode;

use clap::Subcommand;

use crate::cli::Format;

/// `drover dev …`.
#[derive(Debug, Subcommand)]
pub enum DevCommand {}

/// Runs it.
pub async fn run(command: DevCommand, _format: Format) -> anyhow::Result<ExitCode> {
    match command {}
}
