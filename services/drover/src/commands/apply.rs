//! `drover apply` and `drover delete -f`: files of EMCO documents, parents first, and for a deletion children first.
//!
//! A document is created, or replaced if it exists. A verb is called after all documents are written. A verb that is not possible is an
//! error, unless what the file asks for is so already.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use super::documents::{Document, DocumentFiles, read_all, says};
use crate::application::operation_of;
use crate::hub::{code, is_status};
use crate::session::Session;
use crate::{output, watch};

/// `drover apply`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  drover apply -f emco-resources.yaml\n  drover apply -f 01-clusters.yaml -f 02-project.yaml --wait\n  \
    drover apply -f prerequisites.yaml --values values.yaml     # Go templates, as for emcoctl"
)]
pub struct ApplyArgs {
    #[command(flatten)]
    pub source: DocumentFiles,
    /// Wait for the operation that each verb starts before the next one is called.
    #[arg(long)]
    pub wait: bool,
}

/// Runs `apply`.
pub async fn run(session: &Session, args: ApplyArgs) -> Result<()> {
    let documents = read_all(&args.source)?;
    // For each group and logical cloud, the last verb of the files: the state that they ask for.
    let goals: BTreeMap<String, &str> =
        documents.iter().filter_map(|document| document.verb().map(|(verb, owner)| (owner, verb))).collect();
    let (mut done, mut changed) = (Vec::new(), BTreeSet::new());
    for document in &documents {
        let outcome = match document.verb() {
            Some((verb, owner)) => {
                let goal = goals.get(&owner).copied().unwrap_or(verb);
                call(session, document, &owner, goal, args.wait).await
            }
            None => write(session, document).await,
        };
        let outcome = outcome.with_context(|| document.title())?;
        match document.verb() {
            None if outcome != "unchanged" => drop(changed.insert(document.path())),
            Some((_, owner)) if outcome.starts_with("unchanged") && changed.iter().any(|path| path.starts_with(&owner)) => {
                eprintln!("warning: {}: documents below it have changed; they take effect with {owner}/update", document.title());
            }
            _ => {}
        }
        done.push((document, outcome));
    }
    print(session, &done)
}

fn print(session: &Session, done: &[(&Document, String)]) -> Result<()> {
    let rows = done.iter().map(|(document, outcome)| json!({"anchor": document.anchor, "name": document.name, "outcome": outcome}));
    output::print(session.format, &rows.collect::<Vec<_>>(), |_| {
        let row = |(document, outcome): &(&Document, String)| {
            vec![document.anchor.clone(), document.name.clone().unwrap_or_default(), outcome.clone()]
        };
        (vec!["ANCHOR", "NAME", "OUTCOME"], done.iter().map(row).collect())
    })
}

/// The state in which nothing is left to do for a verb.
fn state_after(verb: &str) -> Option<&'static str> {
    match verb {
        "approve" => Some("Approved"),
        "instantiate" => Some("Instantiated"),
        "terminate" => Some("Terminated"),
        _ => None,
    }
}

/// The state of a group or logical cloud.
async fn state_of(session: &Session, owner: &str) -> Result<Option<String>> {
    let status: Value = session.client.get(&format!("{owner}/status")).await?;
    let last = status["states"]["actions"].as_array().and_then(|actions| actions.last());
    Ok(last.and_then(|action| action["state"].as_str()).map(str::to_owned))
}

async fn call(session: &Session, document: &Document, owner: &str, goal: &str, wait: bool) -> Result<String> {
    let answer = match session.client.post(&document.path(), document.body.as_ref()).await {
        Err(error) if code(&error) == Some("wrong_state") => {
            let state = state_of(session, owner).await?;
            // So that repeating `drover apply` is harmless.
            return match state.filter(|state| state_after(goal) == Some(state)) {
                Some(state) => Ok(format!("unchanged: {state}")),
                None => Err(error),
            };
        }
        answer => answer?,
    };
    if answer.location.is_none() {
        return Ok("done".into());
    }
    let id = operation_of(&answer)?;
    if wait {
        watch::to_success(&session.client, &id).await?;
        return Ok("done".into());
    }
    Ok(format!("operation {id}"))
}

async fn write(session: &Session, document: &Document) -> Result<String> {
    let (Some(body), Some(address)) = (&document.body, document.address()) else { return Ok("unchanged".into()) };
    match session.client.post(&document.path(), Some(body)).await {
        Ok(answer) => {
            for warning in answer.warnings {
                let text = warning.splitn(3, ' ').last().unwrap_or_default().trim_matches('"');
                eprintln!("warning: {}: {text}", document.title());
            }
            Ok("created".into())
        }
        Err(error) if code(&error) == Some("already_exists") => {
            // Some kinds cannot be replaced, at least not any more, so a document that is as wanted is left alone. Files are not part
            // of what is read, so they are always sent.
            let there = session.client.find(&address).await?.unwrap_or_default();
            if body.get("file").is_none() && body.get("files").is_none() && says(&there, body) {
                return Ok("unchanged".into());
            }
            session.client.put(&address, body).await.map(|_| "replaced".into())
        }
        Err(error) => Err(error),
    }
}

/// Runs `delete -f`: terminates what the files instantiate, then deletes their documents, children first.
///
/// # Errors
/// A file cannot be read, a request is refused, or a termination fails.
pub async fn delete(session: &Session, source: &DocumentFiles) -> Result<()> {
    let documents = read_all(source)?;
    let mut done = Vec::new();
    for document in documents.iter().rev() {
        let outcome = match document.verb() {
            Some(("instantiate" | "apply", owner)) => Some(terminate(session, &owner).await),
            Some(_) => None,
            None => Some(remove(session, document).await),
        };
        if let Some(outcome) = outcome {
            done.push((document, outcome.with_context(|| document.title())?));
        }
    }
    print(session, &done)
}

async fn terminate(session: &Session, owner: &str) -> Result<String> {
    match session.client.post(&format!("{owner}/terminate"), None).await {
        Ok(answer) if answer.location.is_some() => {
            watch::to_success(&session.client, &operation_of(&answer)?).await?;
            Ok("terminated".into())
        }
        Ok(_) => Ok("terminated".into()),
        Err(error) if is_status(&error, 404) => Ok("not there".into()),
        Err(error) if code(&error) == Some("wrong_state") => match state_of(session, owner).await?.as_deref() {
            Some(state @ ("Created" | "Approved" | "Terminated")) => Ok(format!("unchanged: {state}")),
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

async fn remove(session: &Session, document: &Document) -> Result<String> {
    let Some(address) = document.address() else { return Ok("not there".into()) };
    match session.client.call(reqwest::Method::DELETE, &address, None).await {
        Ok(_) => Ok("deleted".into()),
        Err(error) if is_status(&error, 404) => Ok("not there".into()),
        Err(error) => Err(error),
    }
}
