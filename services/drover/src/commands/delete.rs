//! `drover delete`.

use anyhow::Result;
use clap::Args;

use super::documents::DocumentFiles;
use super::{Session, apply, deploy};

/// `drover delete`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  drover delete shop\n  drover delete -f emco-resources.yaml --values values.yaml")]
pub struct DeleteArgs {
    /// Name of an application that `deploy` made.
    #[arg(conflicts_with = "files", required_unless_present = "files")]
    pub name: Option<String>,
    #[command(flatten)]
    pub source: DocumentFiles,
}

/// Runs it.
pub async fn run(session: &Session, args: &DeleteArgs) -> Result<()> {
    match &args.name {
        Some(name) => deploy::delete(session, name).await,
        None => apply::delete(session, &args.source).await,
    }
}
