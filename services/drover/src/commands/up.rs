//! `drover up`.
use clap::Args;
/// `drover up`.
#[derive(Debug, Args)]
pub struct UpArgs {}
/// Runs it.
pub async fn run(_args: UpArgs) -> anyhow::Result<()> { anyhow::bail!("being built") }
