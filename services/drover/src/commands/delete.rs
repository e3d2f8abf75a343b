//! `drover delete`.

use anyhow::{Result, bail};
use clap::Args;
use drover_api::operations::OperationState;

use super::apply;
use super::documents::DocumentFiles;
use crate::application::{Application, deployed, operation_of, remove, state};
use crate::session::Session;
use crate::watch;

/// `drover delete`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover delete shop
  drover delete shop --delete-volumes
  drover delete -f emco-resources.yaml --values values.yaml

Volume claims that StatefulSets made stay with their data, as in Kubernetes, unless --delete-volumes is given.")]
pub struct DeleteArgs {
    /// Name of an application that `deploy` made.
    #[arg(conflicts_with = "files", required_unless_present = "files")]
    pub name: Option<String>,
    /// Also delete the volume claims that its StatefulSets made, when its pods are gone. Their data is lost.
    #[arg(long, conflicts_with = "files")]
    pub delete_volumes: bool,
    #[command(flatten)]
    pub source: DocumentFiles,
}

/// Deletes the application, or the objects of the files, that the options name.
///
/// # Errors
/// There is no such application, or a request is refused or fails.
pub async fn run(session: &Session, args: &DeleteArgs) -> Result<()> {
    match &args.name {
        Some(name) => application(session, name, args.delete_volumes).await,
        None => apply::delete(session, &args.source).await,
    }
}

/// Terminates the application and removes the resources that `deploy` made.
async fn application(session: &Session, name: &str, delete_volumes: bool) -> Result<()> {
    let application = Application::new(session, name);
    if session.client.find(&application.composite).await?.is_none() {
        bail!("no application is called {name} in project {}; see `drover get apps`", session.project);
    }
    let (mut with_volumes, mut deleted) = (Vec::new(), false);
    if matches!(state(session, &application).await?.as_deref(), Some("Instantiated" | "InstantiateStopped")) {
        with_volumes = deployed::keeping_volumes(session, name).await?;
        let query = if delete_volumes { "?deleteVolumes=true" } else { "" };
        let answer = session.client.post(&format!("{}/terminate{query}", application.group), None).await?;
        let operation = watch::follow(&session.client, &operation_of(&answer)?).await?;
        // An instantiation that goes on is cancelled instead, which is what was asked for.
        if operation.state != OperationState::Cancelled {
            // What the clusters did not let go has been named.
            deleted = delete_volumes && !watch::succeeded(operation)?.kept.iter().any(|kept| kept.contains("PersistentVolumeClaim/"));
        }
    }
    remove::remove(session, &application).await?;
    for set in with_volumes {
        match deleted {
            true => eprintln!("volume claims that {set} made are deleted"),
            false => eprintln!(
                "note: volume claims that {set} made stay there with their data, as in Kubernetes; `kubectl delete pvc` removes them, and `drover delete --delete-volumes` would have"
            ),
        }
    }
    eprintln!("{name} is gone");
    Ok(())
}
