//! `drover rollback`: brings an application back to an earlier revision. `drover history --revisions` lists them.

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::application::{Application, operation_of};
use crate::globals::Format;
use crate::session::Session;
use crate::{output, watch};

/// `drover rollback`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover history shop --revisions
  drover rollback shop --dry-run
  drover rollback shop --to 3 --wait

The revision gets a new number. Files and values that were deployed last stay stored: the next `drover deploy` is an update again.")]
pub struct RollbackArgs {
    /// Name of the application.
    name: String,
    /// The revision to go back to [default: the one before the current one].
    #[arg(long, value_name = "REVISION")]
    to: Option<i64>,
    /// Print which objects would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Wait until the application is Ready. Ctrl-C ends the waiting, not the rollback.
    #[arg(long)]
    wait: bool,
}

/// Starts the rollback and prints its operation, or waits until it has succeeded; a dry run prints what would change.
///
/// # Errors
/// The application does not run or has no earlier revision, or a request fails.
pub async fn run(session: &Session, args: &RollbackArgs) -> Result<()> {
    let application = Application::new(session, &args.name);
    let to = match args.to {
        Some(to) => to,
        None => earlier(&revisions(session, &application).await?, &args.name)?,
    };
    let body = json!({"metadata": {"description": ""}, "spec": {"revision": to}});
    let path = format!("{}/rollback", application.group);
    if args.dry_run {
        let diff = session.client.post(&format!("{path}?dryRun=All"), Some(&body)).await?.body;
        return output::print(session.format, &diff, |_| (vec!["APP", "OBJECT", "CHANGE"], changes(&diff)));
    }
    let id = operation_of(&session.client.post(&path, Some(&body)).await?)?;
    if !args.wait {
        return output::print(session.format, &json!({"operation": id}), |_| (vec!["OPERATION"], vec![vec![id.clone()]]));
    }
    let operation = watch::to_success(&session.client, &id).await?;
    if session.format != Format::Table {
        return output::print(session.format, &operation, |_| (vec![], vec![]));
    }
    eprintln!("{} is at revision {to} again", args.name);
    Ok(())
}

/// The revisions of an application, oldest first.
///
/// # Errors
/// There is no such application, or the request fails.
pub async fn revisions(session: &Session, application: &Application) -> Result<Vec<Value>> {
    let list = session.client.find(&format!("{}/revisions", application.group)).await?;
    let list = list.with_context(|| format!("there is no such application in project {}; see `drover get apps`", session.project))?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// The last revision before the current one that has other objects; if there is none, the last one.
fn earlier(revisions: &[Value], name: &str) -> Result<i64> {
    let Some(current) = revisions.iter().position(|revision| revision["current"] == true) else {
        bail!("{name} does not run; `drover deploy {name} -f FILE` starts it");
    };
    let before = &revisions[..current];
    let other = before.iter().rev().find(|revision| revision["digest"] != revisions[current]["digest"]);
    let before = other.or(before.last()).and_then(|revision| revision["revision"].as_i64());
    ensure!(before.is_some(), "{name} has no earlier revision; see `drover history {name} --revisions`");
    Ok(before.unwrap_or_default())
}

fn changes(diff: &Value) -> Vec<Vec<String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let objects = diff["objects"].as_array().into_iter().flatten();
    let mut rows: Vec<Vec<String>> = objects.map(|object| ["app", "object", "change"].map(|field| text(&object[field])).to_vec()).collect();
    let placement = diff["placement"].as_array().into_iter().flatten();
    rows.extend(placement.map(|app| vec![text(app), "placement".to_owned(), "changed".to_owned()]));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_the_revision_before_the_current_one() {
        let revision = |number: i64, current: bool| json!({"revision": number, "current": current});
        assert_eq!(earlier(&[revision(1, false), revision(4, false), revision(5, true)], "shop").unwrap(), 4);
        let of = |number: i64, digest: &str| json!({"revision": number, "current": number == 3, "digest": digest});
        assert_eq!(earlier(&[of(1, "a"), of(2, "b"), of(3, "b")], "shop").unwrap(), 1, "the copy for a new cluster has the same objects");
        let first = earlier(&[revision(1, true)], "shop").unwrap_err();
        assert!(first.to_string().contains("no earlier revision"), "{first}");
        assert!(earlier(&[revision(1, false)], "shop").unwrap_err().to_string().contains("does not run"));
    }
}
