//! `drover demo`.
use clap::Args;
/// `drover demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {}
/// Runs it.
pub async fn run(_args: DemoArgs) -> anyhow::Result<std::process::ExitCode> { anyhow::bail!("being built") }
