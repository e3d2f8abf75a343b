//! `drover delete`.

use anyhow::{Result, bail};
use clap::Args;
use drover_api::operations::OperationState;

use super::apply;
use super::documents::DocumentFiles;
use crate::application::deployed::{self, KeepingSet};
use crate::application::{Application, operation_of, remove, state};
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
    let mut notes = Vec::new();
    if matches!(state(session, &application).await?.as_deref(), Some("Instantiated" | "InstantiateStopped")) {
        let sets = deployed::keeping_volumes(session, name).await?;
        let query = if delete_volumes { "?deleteVolumes=true" } else { "" };
        let answer = session.client.post(&format!("{}/terminate{query}", application.group), None).await?;
        let operation = watch::follow(&session.client, &operation_of(&answer)?).await?;
        let (kept, leftovers) = (operation.kept.clone(), operation.leftovers.clone());
        // An instantiation that goes on is cancelled instead, which is what was asked for. It deletes no volumes.
        let cancelled = operation.state == OperationState::Cancelled;
        if !cancelled {
            watch::succeeded(operation)?;
        }
        notes = about_volumes(&sets, &kept, &leftovers, delete_volumes && !cancelled);
    }
    remove::remove(session, &application).await?;
    notes.iter().for_each(|note| eprintln!("{note}"));
    eprintln!("{name} is gone");
    Ok(())
}

/// What remains to be said about the volume claims of these StatefulSets: the claims in `kept` were named while the operation was watched. A
/// cluster that answers has named all that stay. One of the `leftovers` could not.
fn about_volumes(sets: &[KeepingSet], kept: &[String], leftovers: &[String], deleted: bool) -> Vec<String> {
    let named = |KeepingSet { set, member }: &KeepingSet| {
        let (claim, all) = (format!("-{set}-"), format!("/{set} stay"));
        kept.iter().filter_map(|kept| kept.strip_prefix(&format!("on {member}: "))).any(|kept| match kept.split_once(' ') {
            Some((object, _)) if object.starts_with("PersistentVolumeClaim/") => object.contains(&claim),
            _ => kept.starts_with("volume claims of StatefulSet/") && kept.contains(&all),
        })
    };
    let silent = |set: &KeepingSet| leftovers.iter().any(|copy| copy.ends_with(&format!(" on {}", set.member)));
    let others = sets.iter().filter(|set| !named(set) && (deleted || silent(set)));
    let end = if deleted { "are deleted" } else { "stay there with their data, as in Kubernetes" };
    let mut notes: Vec<String> =
        others.map(|KeepingSet { set, member }| format!("volume claims that StatefulSet/{set} on {member} made {end}")).collect();
    if !deleted && sets.iter().any(|set| named(set) || silent(set)) {
        notes.push("note: `kubectl delete pvc` removes volume claims, and `drover delete --delete-volumes` would have".to_owned());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_claims_are_told_of_once() {
        let set = |set: &str, member: &str| KeepingSet { set: set.to_owned(), member: member.to_owned() };
        let sets = [set("db", "p+a"), set("queue", "p+a"), set("db", "p+b")];
        let kept = [
            "on p+a: PersistentVolumeClaim/shop/data-db-0 stays with its data: StatefulSet db made it",
            "on p+a: volume claims of StatefulSet/shop/queue stay with their data, if it made any",
        ]
        .map(str::to_owned);
        let hint = "note: `kubectl delete pvc` removes volume claims, and `drover delete --delete-volumes` would have";
        let rest = "volume claims that StatefulSet/db on p+b made stay there with their data, as in Kubernetes";
        let silent = ["db/db on p+b".to_owned()];
        assert_eq!(about_volumes(&sets, &kept, &silent, false), [rest, hint]);
        assert_eq!(about_volumes(&sets[..2], &kept, &[], false), [hint]);
        assert_eq!(about_volumes(&[], &[], &[], false), [""; 0]);
        // Nothing stays of a set whose claims go with it.
        assert_eq!(about_volumes(&sets[..1], &[], &[], false), [""; 0]);

        let refused = ["on p+a: PersistentVolumeClaim/shop/data-db-0 stays: it is protected".to_owned()];
        let deleted =
            ["volume claims that StatefulSet/queue on p+a made are deleted", "volume claims that StatefulSet/db on p+b made are deleted"];
        assert_eq!(about_volumes(&sets, &refused, &silent, true), deleted);
    }
}
