//! `drover deploy`: makes EMCO resources from plain manifests, then calls approve and instantiate, or update.
//!
//! Can be repeated after a failure at any point: every resource is created or replaced by name, and the verb is chosen by the state of
//! the group.

mod args;

use std::path::Path;

use anyhow::{Context, Result, bail};
use drover_api::operations::Operation;
use serde_json::{Value, json};

pub use self::args::{DeployArgs, MovableArg, WhenFullArg};
use super::newcomer;
use crate::application::before::Before;
use crate::application::prepare::prepare;
use crate::application::source::Source;
use crate::application::wishes::{Wishes, elements, every};
use crate::application::{Application, deployed, dry_run, moves, operation_of, routes, verb};
use crate::globals::Format;
use crate::manifests::Deployable;
use crate::session::Session;
use crate::{clusters, output, plans, watch};

/// Runs it.
pub async fn run(session: &Session, args: DeployArgs) -> Result<()> {
    let application = Application::new(session, &args.name);
    let clusters = clusters::all(session).await?;
    if let Some(label) = &args.label {
        clusters::have_label(session, &clusters, label).await?;
    }
    let Source { deployable, is_new } = args.source.read(session, &application).await?;
    let is_placed = args.everywhere || !args.on.is_empty() || args.only.is_some() || args.label.is_some() || !is_new;
    if deployable.workloads == Some(0) && !is_placed && clusters.len() > 1 {
        bail!(
            "there is no workload (Deployment, Pod, …) in these manifests, so no cluster suits them better than another; say where they belong: `--everywhere`, `--on PROVIDERS`, `--only CLUSTER` or `--label LABEL`"
        );
    }
    let uploads = &deployable.uploads;
    let wishes = Wishes {
        any_of: elements(&clusters, &args.on, args.only.as_deref(), args.label.as_deref())?.or_else(|| args.everywhere.then(every)),
        everywhere: args.everywhere,
        when_full: args.when_full.map(WhenFullArg::word),
        allow_dependants: args.movable.map(|which| which == MovableArg::All),
        movable: if args.movable.is_some() {
            Some((true, move_priority(session, &application, args.move_priority).await?))
        } else if args.pinned {
            Some((false, 10))
        } else {
            None
        },
        ..args.source.wishes()?
    };
    deployable.notes.iter().for_each(|note| eprintln!("note: {note}"));
    let loses_names = wishes.allow_dependants == Some(true) && !moves::names_follow(session, &clusters).await?;
    if loses_names {
        moves::name_those_that_stay(uploads);
    }
    if args.dry_run {
        let before = Before::read(session, &application, &wishes).await?;
        let outcome = dry_run::ask(session, &application, uploads, &wishes).await;
        let outcome = before.restore_after(session, &application, outcome).await?;
        if loses_names {
            moves::name_callers(&outcome["callers"]);
        }
        print_dry_run(session, &outcome)?;
        // What runs together is not taken apart.
        let hint = |error| if outcome.get("decision").is_some() { hint_to_split(error, &deployable) } else { error };
        return plans::fits(&outcome).map_err(hint);
    }
    newcomer::drop_planned(session, &application).await?;
    prepare(session, &application, uploads, &wishes).await?;
    if args.no_routes || !args.routes.is_empty() {
        routes::replace(session, &application, &args.routes, args.route_by.as_ref(), uploads).await?;
    }
    let verb = verb(session, &application).await?;
    let body = args.since_dry_run.as_deref().map(basis).transpose()?;
    let answer = session.client.post(&format!("{}/{verb}", application.group), body.as_ref()).await?;
    let id = operation_of(&answer)?;
    if body.is_some() {
        print_changes(session, &id).await?;
    }
    if loses_names {
        moves::name_callers(&moves::callers(session, &application).await?);
    }
    if args.wait {
        let operation = watch::to_success(&session.client, &id).await.map_err(|error| hint_to_split(error, &deployable))?;
        if session.format != Format::Table {
            return output::print(session.format, &operation, |_| (vec![], vec![]));
        }
        eprintln!("{} is up: {}", args.name, deployed::objects(session, &application, deployable.objects).await?);
        if deployable.objects.is_none() {
            print_notes(session, &application).await;
        }
        return Ok(());
    }
    output::print(session.format, &json!({"operation": id}), |_| (vec!["OPERATION"], vec![vec![id.clone()]]))
}

/// The body that names the basis of the dry run in this file.
fn basis(file: &Path) -> Result<Value> {
    let text = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let answer: Value = serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", file.display()))?;
    match answer.get("basis") {
        Some(basis) => Ok(json!({"basis": basis})),
        None => bail!("{} is not the answer of `drover deploy … --dry-run -o json`: it has no `basis`", file.display()),
    }
}

/// Prints what charts say to those who install them. The application is up whether that can be rendered or not.
async fn print_notes(session: &Session, application: &Application) {
    match session.client.find(&format!("{}/notes", application.group)).await {
        Ok(list) => {
            let list = list.unwrap_or_default();
            let notes = list["items"].as_array().into_iter().flatten().filter_map(|item| item["notes"].as_str());
            notes.for_each(|text| eprintln!("\n{}", text.trim_end()));
        }
        Err(error) => eprintln!("note: the notes of the chart cannot be shown: {error:#}"),
    }
}

async fn print_changes(session: &Session, id: &str) -> Result<()> {
    let operation: Operation = session.client.get(&format!("/v2/operations/{id}")).await?;
    match operation.changed_since_dry_run.as_slice() {
        [] => eprintln!("nothing has changed since the dry run"),
        changes => changes.iter().for_each(|change| eprintln!("changed since the dry run: {change}")),
    }
    Ok(())
}

/// An application of several workloads that fits no cluster may fit when it is taken apart.
fn hint_to_split(error: anyhow::Error, deployable: &Deployable) -> anyhow::Error {
    let together = deployable.uploads.len() == 1 && deployable.workloads.is_some_and(|workloads| workloads > 1);
    let text = error.to_string();
    // A workload that no node admits fits no better by itself.
    let dry = error.is::<output::NoRoom>();
    let is_full = dry || ["no_room", "plan_infeasible"].iter().any(|code| text.contains(code));
    if !together || !is_full || text.contains("no node admits it") {
        return error;
    }
    let hinted = format!("{text}\n  hint: all its workloads go to one cluster; `--split` places each of them by itself");
    if dry { output::NoRoom(hinted).into() } else { anyhow::anyhow!("{hinted}") }
}

/// The priority that was given, else the one that the application has, else 10.
async fn move_priority(session: &Session, application: &Application, given: Option<u8>) -> Result<u8> {
    if let Some(given) = given {
        return Ok(given);
    }
    let [_, intents] = application.intents();
    let known = session.client.find(&intents).await?.unwrap_or_default();
    let known = known.as_array().into_iter().flatten().find_map(|intent| intent["spec"]["priority"].as_u64());
    Ok(known.and_then(|known| u8::try_from(known).ok()).unwrap_or(10))
}

fn print_dry_run(session: &Session, body: &Value) -> Result<()> {
    output::print(session.format, body, |_| (vec!["DRY RUN: nothing was changed"], plans::dry_run_rows(body)))
}
