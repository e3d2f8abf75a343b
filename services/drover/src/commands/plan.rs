//! `drover plan …`: make, show, apply and discard plans.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use drover_api::plans::{PlanDocument, PlanState};
use serde_json::{Value, json};

use super::newcomer;
use crate::application::operation_of;
use crate::application::wishes::{Wishes, elements};
use crate::output::NoRoom;
use crate::plans::{PlanSearchArgs, made, print};
use crate::session::Session;
use crate::{clusters, hub, manifests, output, watch};

/// `drover plan …`.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Plan what would have to move to make room for these manifests. Moves nothing.
    #[command(after_help = "Example:\n  drover plan newcomer ledger.yaml --only private-a")]
    Newcomer {
        /// Manifests.
        path: PathBuf,
        /// Name of the application [default: that of the file].
        #[arg(long)]
        name: Option<String>,
        /// Run only on this cluster.
        #[arg(long, value_name = "CLUSTER")]
        only: Option<String>,
        /// Run only on clusters of these providers (comma separated).
        #[arg(long, value_delimiter = ',', value_name = "PROVIDERS", conflicts_with = "only")]
        on: Vec<String>,
        #[command(flatten)]
        search: PlanSearchArgs,
        /// Show the plan and leave nothing behind; it cannot be applied, but `drover deploy` will make its like.
        #[arg(long)]
        dry_run: bool,
    },
    /// Plan what would have to move to empty a cluster. Moves nothing.
    #[command(after_help = "Example:\n  drover plan drain private-a")]
    Drain {
        /// Cluster, or provider/cluster.
        cluster: String,
        #[command(flatten)]
        search: PlanSearchArgs,
    },
    /// Plan an even distribution over the clusters (not available in this version).
    Rebalance,
    /// Show a plan.
    Show {
        /// Plan id.
        id: String,
        /// Also show for every other candidate why it is not moved.
        #[arg(long)]
        why_not: bool,
    },
    /// Carry out a plan; refused if what it assumed has changed.
    Apply {
        /// Plan id.
        id: String,
        /// Wait until it is done.
        #[arg(long)]
        wait: bool,
    },
    /// Discard a plan.
    Discard {
        /// Plan id.
        id: String,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// A file cannot be read, there is no such cluster or plan, no plan is possible, or a request is refused or fails.
pub async fn run(session: &Session, command: PlanCommand) -> Result<()> {
    match command {
        PlanCommand::Newcomer { path, name, only, on, search, dry_run } => {
            let name = name.unwrap_or_else(|| path.file_stem().map_or_else(|| "newcomer".into(), |s| s.to_string_lossy().into_owned()));
            let uploads = manifests::read(&path, &name).await?;
            let clusters = clusters::all(session).await?;
            let wishes = Wishes { any_of: elements(&clusters, &on, only.as_deref(), None)?, ..Wishes::default() };
            let document = newcomer::plan(session, &name, &uploads, &wishes, &search, dry_run).await?;
            print(session, &document, false)?;
            if document.state == PlanState::Proposed && !dry_run {
                eprintln!("{name} is not deployed: `drover plan apply {0}` does it, `drover plan discard {0}` forgets it", document.id);
            }
            feasible(&document)
        }
        PlanCommand::Drain { cluster, search } => {
            let cluster = clusters::find(session, &cluster).await?;
            let wish = json!({"kind": "drain", "clusterProvider": cluster.provider, "cluster": cluster.cluster});
            make(session, &wish, Some(&search)).await
        }
        PlanCommand::Rebalance => make(session, &json!({"kind": "rebalance"}), None).await,
        PlanCommand::Show { id, why_not } => {
            let document: PlanDocument = session.client.read(session.client.api.plan_get(&hub::id(&id)?)).await?;
            print(session, &document, why_not)
        }
        PlanCommand::Apply { id, wait } => {
            let answer = session.client.answer(session.client.api.plan_apply(&hub::id(&id)?, None, None)).await?;
            let operation = operation_of(&answer)?;
            if wait {
                let operation = watch::to_success(&session.client, &operation).await?;
                return super::operation::print(session, &operation);
            }
            output::print(session.format, &json!({"operation": operation}), |_| (vec!["OPERATION"], vec![vec![operation.clone()]]))
        }
        PlanCommand::Discard { id } => {
            let document: PlanDocument = session.client.read(session.client.api.plan_get(&hub::id(&id)?)).await?;
            session.client.answer(session.client.api.plan_discard(&hub::id(&id)?, None)).await?;
            newcomer::discarded(session, &document).await?;
            eprintln!("plan {id} discarded");
            Ok(())
        }
    }
}

async fn make(session: &Session, wish: &Value, search: Option<&PlanSearchArgs>) -> Result<()> {
    let document = made(session, wish, search, false).await?;
    print(session, &document, false)?;
    feasible(&document)
}

/// Fails with exit code 3 if the plan makes no room.
fn feasible(document: &PlanDocument) -> Result<()> {
    match document.plan {
        Some(_) => Ok(()),
        None => Err(NoRoom(format!("{}: no plan makes enough room", document.kind)).into()),
    }
}
