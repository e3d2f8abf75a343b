//! `drover plan newcomer`: the plan that would make room for an application that is not deployed yet.
//!
//! A plan refers to documents, so the application's documents are made for it, and marked. They stay only as long as there is a plan that
//! can be applied: they are removed when there is none, when the plan is discarded, and when the application is deployed in another way.
//! Without the mark, documents belong to the user and are restored.

use anyhow::{Result, bail};
use drover_api::plans::{PlanDocument, PlanState, PlanSubject};
use serde_json::{Value, json};

use crate::application::before::Before;
use crate::application::prepare::prepare;
use crate::application::wishes::Wishes;
use crate::application::{Application, remove, state};
use crate::manifests::Upload;
use crate::plans::{self, PlanSearchArgs};
use crate::session::Session;

/// What `userData1` of a composite app says whose documents were made for a plan.
const MARK: &str = "made by drover plan newcomer";

/// Makes the documents of `name` and asks for a plan; with `dry_run` neither is kept.
///
/// # Errors
/// The application runs already, a request fails, or documents cannot be restored.
pub async fn plan(
    session: &Session,
    name: &str,
    uploads: &[Upload],
    wishes: &Wishes,
    search: &PlanSearchArgs,
    dry_run: bool,
) -> Result<PlanDocument> {
    let application = Application::new(session, name);
    if state(session, &application).await?.as_deref() == Some("Instantiated") {
        bail!("{name} runs already; `drover deploy {name} -f FILE --dry-run` shows what an update would do");
    }
    drop_planned(session, &application).await?;
    let before = Before::read(session, &application, wishes).await?;
    let made = make(session, &application, name, uploads, wishes, search, dry_run, before.is_new()).await;
    let kept = !dry_run && made.as_ref().is_ok_and(|document| document.state == PlanState::Proposed);
    match kept {
        true => made,
        false => before.restore_after(session, &application, made).await,
    }
}

#[allow(clippy::too_many_arguments, reason = "called once, above")]
async fn make(
    session: &Session,
    application: &Application,
    name: &str,
    uploads: &[Upload],
    wishes: &Wishes,
    search: &PlanSearchArgs,
    dry_run: bool,
    is_new: bool,
) -> Result<PlanDocument> {
    prepare(session, application, uploads, wishes).await?;
    if is_new {
        mark(session, application).await?;
    }
    session.client.post(&format!("{}/approve", application.group), None).await?;
    let wish = json!({
        "kind": "newcomer", "project": session.project, "compositeApp": name,
        "compositeAppVersion": "v1", "deploymentIntentGroup": name,
    });
    plans::made(session, &wish, Some(search), dry_run).await
}

async fn mark(session: &Session, application: &Application) -> Result<()> {
    let mut composite: Value = session.client.get(&application.composite).await?;
    composite["metadata"]["userData1"] = MARK.into();
    session.client.put(&application.composite, &composite).await.map(drop)
}

/// Removes documents that were made for a plan and never instantiated; does nothing if there are none.
///
/// # Errors
/// A request fails.
pub async fn drop_planned(session: &Session, application: &Application) -> Result<()> {
    let composite = session.client.find(&application.composite).await?;
    let marked = composite.is_some_and(|composite| composite["metadata"]["userData1"] == MARK);
    if marked && matches!(state(session, application).await?.as_deref(), None | Some("Created" | "Approved")) {
        remove::remove(session, application).await?;
    }
    Ok(())
}

/// Removes the documents that were made for this plan, which is discarded.
///
/// # Errors
/// A request fails.
pub async fn discarded(session: &Session, document: &PlanDocument) -> Result<()> {
    let PlanSubject::Newcomer(dig) = &document.kind else { return Ok(()) };
    let of = Session { client: session.client.clone(), project: dig.project.clone(), format: session.format };
    drop_planned(&of, &Application::new(&of, &dig.composite_app)).await
}
