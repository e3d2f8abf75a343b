//! Plans and decisions as text, and the request for a plan. Commands that show the same thing show it alike.

use anyhow::{Result, bail};
use clap::Args;
use drover_api::plans::{PlanDocument, PlanState, PlanSubject};
use drover_api::scheduling::{AppDecision, Candidate, Decision, Dependant, Plan};
use drover_api::words;
use serde::Deserialize;
use serde_json::Value;

use crate::globals::Format;
use crate::output::NoRoom;
use crate::session::Session;
use crate::{hub, output};

/// How to search for a plan.
#[derive(Debug, Args)]
pub struct PlanSearchArgs {
    /// Time limit of the search in seconds, 0.001 to 20 (default: the server's).
    #[arg(long, value_name = "SECONDS")]
    pub plan_seconds: Option<f64>,
    /// Spend the time on a plan with fewer moves.
    #[arg(long)]
    pub fewest_moves: bool,
}

/// A new plan; with `dry_run` one that is not stored.
///
/// # Errors
/// The plan is refused, or a request fails.
pub async fn made(session: &Session, wish: &Value, search: Option<&PlanSearchArgs>, dry_run: bool) -> Result<PlanDocument> {
    let (api, wish) = (&session.client.api, hub::body(wish.clone())?);
    let fewest = search.and_then(|search| search.fewest_moves.then_some(true));
    let seconds = search.and_then(|search| search.plan_seconds);
    session.client.read(api.plan_create(dry_run.then_some("All"), fewest, seconds, &wish)).await
}

/// Fails with exit code 3 if the answer to a dry run says that there is no room.
///
/// # Errors
/// [`NoRoom`].
pub fn fits(body: &Value) -> Result<()> {
    if let Some(refusal) = refusals(body, false).first() {
        bail!("a cluster would refuse objects: {refusal}");
    }
    let misfits = body.get("misfits").and_then(Value::as_array).is_some_and(|misfits| !misfits.is_empty());
    if misfits && surge_plan(body).is_none() {
        return Err(NoRoom("the new revision does not fit where the application runs".to_owned()).into());
    }
    // In the answer for an update, `newcomer` is about its new apps; it is absent if there are none.
    let Some(newcomer) = body.get("newcomer").or_else(|| body.get("decision").map(|_| body)) else { return Ok(()) };
    let placed = ["decision", "overflow"].into_iter().any(|key| newcomer.get(key).is_some_and(|decision| decision["outcome"] == "placed"));
    match placed || newcomer["plan"]["plan"].is_object() {
        true => Ok(()),
        false => Err(NoRoom("no allowed cluster has room, and no plan makes any".to_owned()).into()),
    }
}

/// What clusters would refuse of the objects, a line per object: what they would refuse in any case, or what may end when other apps have left.
fn refusals(body: &Value, may_end: bool) -> Vec<String> {
    let all = [body.get("refusals"), body.get("newcomer").and_then(|newcomer| newcomer.get("refusals"))];
    let all = all.into_iter().flatten().filter_map(Value::as_array).flatten().filter(|refusal| (refusal["mayEnd"] == true) == may_end);
    let lines = all.flat_map(|refusal| {
        let place = ["app", "member"].map(|key| refusal[key].as_str().unwrap_or_default()).join(" on ");
        let reasons = refusal["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str);
        reasons.map(|reason| format!("{place}: {reason}")).collect::<Vec<_>>()
    });
    lines.collect()
}

/// Prints a plan; with `why_not` also why each other candidate stays.
///
/// # Errors
/// stdout cannot be written.
pub fn print(session: &Session, document: &PlanDocument, why_not: bool) -> Result<()> {
    if matches!(session.format, Format::Json | Format::Yaml) {
        return output::print(session.format, document, |_| (vec![], vec![]));
    }
    output::write_stdout(&text(document, why_not))
}

/// A plan as people read it; with `why_not` also why each other candidate stays.
pub fn text(document: &PlanDocument, why_not: bool) -> String {
    let mut text = format!("plan {}  {:?}  {}\n", document.id, document.state, document.kind);
    if let Some(reason) = &document.reason {
        text.push_str(&format!("because {reason}\n"));
    }
    if let Some(why) = &document.why {
        text.push_str(&format!("{why}\n"));
    }
    match (&document.plan, &document.infeasible) {
        (Some(plan), _) => {
            text.push_str(&lines(plan, why_not).join("\n"));
            if let (PlanSubject::Drain(member), PlanState::Proposed) = (&document.kind, document.state) {
                let cluster = member.cluster();
                text.push_str(&format!(
                    "\nApplying it also closes {cluster} to new copies until `drover cluster uncordon {cluster}`.\n  drover plan apply {}",
                    document.id
                ));
            }
        }
        (None, Some(none)) => {
            text.push_str("no plan makes enough room:\n");
            for why in &none.members {
                text.push_str(&format!("  {}: {}\n", why.member, why.reason));
            }
            if none.cut_short {
                text.push_str(&format!("  (the search stopped after {} combinations)\n", none.examined));
            }
            text.push_str(&candidates(&none.candidates));
        }
        (None, None) => {}
    }
    text
}

/// A plan as lines of text, as the demo and `plan show` print it.
pub fn lines(plan: &Plan, why_not: bool) -> Vec<String> {
    let moves: Vec<_> = plan.waves.iter().flatten().collect();
    let mut lines = vec![format!(
        "move {} of {} candidates; frees {}, needed {}",
        moves.len(),
        plan.candidates.len(),
        output::amounts(&plan.freed),
        output::amounts(&plan.needed)
    )];
    for item in moves {
        lines.push(format!(
            "  {}/{} → {}   {}   frees {}",
            item.dig.composite_app,
            item.app,
            item.to.cluster(),
            item.reason,
            output::amounts(&item.frees)
        ));
    }
    lines.extend(callable(&plan.dependants));
    for why in plan.scheduling.iter().flat_map(|scheduling| &scheduling.reasons) {
        lines.push(format!("  note: on {}, {}", why.member.cluster(), why.reason));
    }
    if why_not {
        lines.push(candidates(&plan.candidates));
    } else {
        let kept: Vec<String> = plan.candidates.iter().filter(|c| !c.taken).map(kept).collect();
        if !kept.is_empty() {
            lines.push(format!("  kept: {}", kept.join(", ")));
        }
    }
    lines
}

/// How many Services a line names.
const NAMED: usize = 3;

/// The Services of moved apps that other apps may call by name.
fn callable(dependants: &[Dependant]) -> Option<String> {
    let names: Vec<&str> = dependants.iter().map(|dependant| dependant.service.as_str()).collect();
    match names.as_slice() {
        [] => None,
        [one] => Some(format!("  note: other apps may call the Service {one} by name")),
        few if few.len() <= NAMED => Some(format!("  note: other apps may call these Services by name: {}", few.join(", "))),
        all => {
            let (told, more) = all.split_at(NAMED);
            Some(format!("  note: other apps may call these Services by name: {} (and {} more)", told.join(", "), more.len()))
        }
    }
}

fn kept(candidate: &Candidate) -> String {
    let why = candidate.why_not.as_ref().map_or("not needed", |why| why.detail.as_str());
    format!("{}/{} ({why})", candidate.dig.composite_app, candidate.app)
}

fn candidates(list: &[Candidate]) -> String {
    let rows: Vec<_> = list.iter().enumerate().map(|(i, c)| candidate_row(i, c)).collect();
    output::table(&["#", "APP", "PRIORITY", "SCORES", "TOTAL", "STAYS BECAUSE"], &rows)
}

/// A candidate as a row of the table of candidates.
pub fn candidate_row(at: usize, candidate: &Candidate) -> Vec<String> {
    vec![
        (at + 1).to_string(),
        format!("{}/{}", candidate.dig.composite_app, candidate.app),
        candidate.priority.to_string(),
        words::scores(candidate),
        candidate.total.map(|t| format!("{t:.3}")).unwrap_or_default(),
        candidate.why_not.as_ref().map(|why| why.detail.clone()).unwrap_or_default(),
    ]
}

/// A row per cluster that was considered.
pub fn considered<'a>(decisions: impl IntoIterator<Item = &'a AppDecision>) -> Vec<Vec<String>> {
    let row = |c: words::Considered<'_>| {
        vec![c.app.to_owned(), c.member.to_owned(), c.priority.to_string(), c.verdict.to_owned(), c.reason.to_owned()]
    };
    decisions.into_iter().flat_map(words::considered).map(row).collect()
}

/// The moves that make room for an update where it runs, in the answer to its dry run.
fn surge_plan(body: &Value) -> Option<Plan> {
    // Only the answer to an update or a terminate has `applied`; else `plan` is that of a newcomer.
    body.get("applied")?;
    PlanDocument::deserialize(body.get("plan")?).ok()?.plan
}

/// The response of a dry run as rows: where each app would be placed, or the plan that would make room.
pub fn dry_run_rows(body: &Value) -> Vec<Vec<String>> {
    // In the response to an update, `newcomer` is about its new apps.
    let newcomer = body.get("newcomer").unwrap_or(body);
    let decided = ["decision", "overflow"].into_iter().filter_map(|key| Decision::deserialize(newcomer.get(key)?).ok());
    let surge = surge_plan(body);
    let plan = newcomer.get("plan").and_then(|plan| PlanDocument::deserialize(plan).ok()).and_then(|document| document.plan);
    let plan = plan.filter(|_| newcomer.get("applied").is_none());
    let mut apps: Vec<_> = decided.flat_map(|decision| decision.apps).collect();
    apps.extend(plan.iter().flat_map(|plan| plan.newcomer.clone()));
    // In the response to an update or a terminate: what changes for each app.
    let change = |key: &str, what: &str| -> Vec<String> {
        let apps = body.get(key).and_then(Value::as_array).into_iter().flatten();
        let words = |app: &Value| match app.as_str() {
            Some(name) => format!("{name}  {what}"),
            None => [&app["app"], &app["member"]].map(|text| text.as_str().unwrap_or_default()).join("  ") + "  " + what,
        };
        apps.map(words).collect()
    };
    let all = [("applied", "applied in place"), ("added", "new"), ("removed", "removed")];
    let changes = all.into_iter().flat_map(|(key, what)| change(key, what));
    let misfits = body.get("misfits").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let objects = body.get("objects").and_then(Value::as_array).into_iter().flatten();
    let changes = changes.chain(objects.map(|object| format!("{} would be {}", text(&object["object"]), text(&object["change"]))));
    let word = if surge.is_some() { "waits for room where it runs" } else { "does not fit where it runs" };
    let changes = changes.chain(misfits.map(|why| format!("{word}: {why}")));
    let changes = changes.chain(refusals(body, false).into_iter().map(|refusal| format!("would be refused: {refusal}")));
    let changes = changes.chain(refusals(body, true).into_iter().map(|refusal| format!("would be refused before the moves: {refusal}")));
    let considered = considered(&apps).into_iter().map(|row| row.join("  "));
    let moves = plan.iter().chain(&surge).flat_map(|plan| lines(plan, false));
    considered.chain(changes).chain(moves).map(|line| vec![line]).collect()
}
