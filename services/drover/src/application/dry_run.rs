//! Asks what a deployment would do. The documents that are written for the question are restored by the caller of [`ask`], or by
//! [`preview`] itself.

use anyhow::{Result, bail};
use serde_json::Value;

use super::before::Before;
use super::prepare::prepare;
use super::wishes::Wishes;
use super::{Application, moves, state};
use crate::manifests::Upload;
use crate::session::Session;

/// What a deployment would change in an application that runs. Documents that are written for that are restored.
///
/// # Errors
/// The application does not run, or a request fails.
pub async fn preview(session: &Session, application: &Application, uploads: &[Upload], wishes: &Wishes) -> Result<Value> {
    if state(session, application).await?.as_deref() != Some("Instantiated") {
        bail!("{0} does not run; `drover deploy {0} … --dry-run` shows where it would go", application.name);
    }
    let before = Before::read(session, application, wishes).await?;
    let outcome = ask(session, application, uploads, wishes).await;
    before.restore_after(session, application, outcome).await
}

/// Writes the documents and asks what the verb would do with them.
///
/// # Errors
/// A request fails.
pub async fn ask(session: &Session, application: &Application, uploads: &[Upload], wishes: &Wishes) -> Result<Value> {
    prepare(session, application, uploads, wishes).await?;
    // Without approving it: that would change the state of a terminated application.
    let verb = match state(session, application).await?.as_deref() {
        Some("Instantiated") => "update?dryRun=All",
        _ => "instantiate?dryRun=All&approve=true",
    };
    let mut outcome = session.client.post(&format!("{}/{verb}", application.group), None).await?.body;
    if wishes.allow_dependants == Some(true) {
        outcome["callers"] = moves::callers(session, application).await?;
    }
    Ok(outcome)
}
