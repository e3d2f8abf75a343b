//! `drover operation …`.

use anyhow::{Result, ensure};
use clap::Subcommand;
use drover_api::operations::{Operation, OperationState};
use serde_json::json;

use super::get::{GetArgs, Wanted, What};
use crate::globals::Format;
use crate::session::Session;
use crate::{hub, output, watch};

/// `drover operation …`.
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// Follow an operation until it ends. Ctrl-C ends the watching, not the operation.
    Watch {
        /// Operation id.
        id: String,
    },
    /// Cancel an operation and undo it; possible until it switches over to the new copies.
    Cancel {
        /// Operation id.
        id: String,
    },
    /// Vouch that nothing of what an operation moves runs in a cluster any more, although the cluster cannot be asked. It is recorded.
    #[command(after_help = "\
Examples:
  drover operation force-fence ID onprem+private-a --reason 'switched off, ticket 4711'

A move of an application with volumes, or of one that must not run twice, waits while a cluster does not answer, because the application may
still run and write there. Only if you have made sure that it does not (the machines are off, or their access to the volumes is cut) does this
command let the move go on. If you are wrong, two pods write into one volume.")]
    ForceFence {
        /// Operation id.
        id: String,
        /// The cluster, as PROVIDER+CLUSTER.
        cluster: String,
        /// How you know, for the record.
        #[arg(long)]
        reason: String,
    },
    /// List operations.
    List,
}

/// Runs the subcommand.
///
/// # Errors
/// There is no such operation, a watched one does not succeed, or a request is refused or fails.
pub async fn run(session: &Session, command: OperationCommand) -> Result<()> {
    match command {
        OperationCommand::Watch { id } => {
            let operation = watch::follow(&session.client, &id).await?;
            print(session, &operation)?;
            ensure!(operation.state == OperationState::Succeeded, "the operation did not succeed");
            Ok(())
        }
        OperationCommand::Cancel { id } => {
            session.client.answer(session.client.api.operation_cancel(&hub::id(&id)?, None, None)).await?;
            let operation = watch::follow(&session.client, &id).await?;
            print(session, &operation)
        }
        OperationCommand::ForceFence { id, cluster, reason } => {
            let path = format!("/v2/operations/{}/force-fence", hub::id(&id)?);
            session.client.post(&path, Some(&json!({"cluster": cluster, "reason": reason}))).await?;
            output::write_stdout(&format!("recorded; the operation goes on without {cluster}\n"))
        }
        OperationCommand::List => {
            super::get::run(session, GetArgs { what: Wanted::List(What::Operations), name: None, watch: false }).await
        }
    }
}

/// Prints one operation with its steps.
///
/// # Errors
/// stdout cannot be written.
pub fn print(session: &Session, operation: &Operation) -> Result<()> {
    if session.format == Format::Table {
        output::write_stdout(&format!("{} {}  {:?}: {}", operation.kind, operation.subject, operation.state, operation.message))?;
        for reason in &operation.reasons {
            output::write_stdout(&format!("  - {reason}"))?;
        }
    }
    output::print(session.format, operation, |_| {
        let rows = operation.steps.iter().map(|step| {
            let ended = step.finished_at.clone().unwrap_or_else(|| "running".into());
            vec![
                step.name.clone(),
                step.direction.clone(),
                step.attempt.to_string(),
                step.started_at.clone(),
                ended,
                step.error.clone().unwrap_or_default(),
            ]
        });
        (vec!["STEP", "", "TRY", "STARTED", "ENDED", "ERROR"], rows.collect())
    })
}
