//! Room for an update where the application runs. Old and new pods run there at the same time for a while; if they do not fit beside the
//! other applications, those that may move are moved away, as for a newcomer, and the update takes the room that they leave.
//!
//! The moves come first, and the claims are raised again when they are made. Meanwhile the room that is needed besides is promised to claims of
//! their own, as that of a newcomer, so that nobody else takes it; these are released in the ledger transaction that raises. For pods that
//! grow that is the difference, which is not certain to fit on the nodes beside the old pods: a plan that comes after another one does without.
//! If the pods do not fit then, because somebody else came first, another plan is made, up to [`REPLANS`] times. Moves that were made stand.

use std::collections::BTreeMap;

use drover_api::plans::PlanOrder;
use drover_api::scheduling::{AppRequest, Demand, MemberKey, Move, PlacementTerms, PlanKind, room_beside, room_of_update};
use drover_workflow::{Child, Ctx, Failure, Outcome, StepError, StepResult};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::relocate::{self, Newcomer, Relocate};
use super::room::{self, REPLANS};
use super::update::{Kept, RAISE, Update};
use super::{only, subject};

/// Name of the relocation.
const CHILD: &str = "surge/relocate";

/// What an update lacks, and the plan that makes it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Surge {
    /// Why the claims could not be raised, for people. Empty: they were.
    #[serde(default)]
    pub lacks: Vec<String>,
    #[serde(default)]
    pub plan: Option<SurgePlan>,
    /// Claims on the room that was made.
    #[serde(default)]
    pub made: Vec<Uuid>,
}

/// A plan, without what only people read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SurgePlan {
    pub id: Uuid,
    moves: Vec<Move>,
    #[serde(default)]
    order: Vec<Uuid>,
    /// The members for which the plan makes room, by app.
    #[serde(default)]
    places: Vec<(String, MemberKey)>,
}

/// What an update needs on the members where it runs, as a newcomer to be planned for, and the claims that it replaces there.
pub fn wanted(kept: &[Kept]) -> (Vec<AppRequest>, Vec<Uuid>) {
    let room = |kept: &Kept| room_of_update(&kept.old.request.demand, &kept.request.demand);
    let released = kept.iter().filter(|kept| kept.replaces_pods() && room(kept).replaces).map(|kept| kept.old.id).collect();
    (where_it_runs(kept, |kept| room(kept).demand), released)
}

/// What it needs there beside the claims that it has. Without `growth`, nothing of that for apps whose pods grow.
fn beside(kept: &[Kept], growth: bool) -> Vec<AppRequest> {
    where_it_runs(kept, |kept| {
        let (old, new) = (&kept.old.request.demand, &kept.request.demand);
        if growth || !room_of_update(old, new).replaces { room_beside(old, new) } else { Demand::default() }
    })
}

/// Requests for room for copies where they run, and nowhere else.
fn where_it_runs(kept: &[Kept], room: impl Fn(&Kept) -> Demand) -> Vec<AppRequest> {
    let mut apps = BTreeMap::<&str, AppRequest>::new();
    for kept in kept.iter().filter(|kept| kept.replaces_pods()) {
        let demand = room(kept);
        if demand.groups.is_empty() {
            continue;
        }
        let app = kept.old.app.as_str();
        let app = apps.entry(app).or_insert_with(|| AppRequest { app: app.to_owned(), demand, terms: PlacementTerms::default() });
        app.terms.intent.all_of.push(only(&kept.old.member));
        app.terms.logical_cloud = app.terms.logical_cloud.iter().cloned().chain([kept.old.member.clone()]).collect();
    }
    apps.into_values().collect()
}

/// The refusal of an update that does not fit.
fn no_room(reasons: &[String]) -> StepError {
    StepError::fail("no_room", "the new revision does not fit where the application runs; nothing was changed").reasons(reasons)
}

/// Remembers that the claims could not be raised. After several plans that is final.
pub(super) fn lacks(ctx: &mut Ctx<Update>, reasons: Vec<String>) -> StepResult {
    if ctx.round > REPLANS {
        return Err(no_room(&reasons));
    }
    ctx.state.surge = Surge { lacks: reasons, ..Surge::default() };
    Ok(Outcome::next())
}

pub(super) async fn plan(ctx: &mut Ctx<Update>) -> StepResult {
    ctx.progress("the new revision does not fit beside the other applications; looking for some that can be moved");
    let (apps, released) = wanted(&ctx.input.kept);
    let kind = PlanKind::Newcomer { dig: ctx.input.dig.clone(), apps };
    let order = PlanOrder { kind, released, ..room::plan_order(ctx, 0).await? };
    let document = ctx.environment.services.migration.plan(ctx.derived_id("surge/plan"), &order).await?;
    let why = document.infeasible.as_ref().map(|infeasible| room::why_infeasible(infeasible).collect::<Vec<_>>()).unwrap_or_default();
    let moves = match &document.plan {
        Some(plan) => relocate::single_wave(plan).map_err(|error| StepError::fail("not_yet", error.to_string()))?,
        None => Vec::new(),
    };
    // Without moves there is nothing that would make the ledger decide otherwise.
    if moves.is_empty() {
        return Err(no_room(&[std::mem::take(&mut ctx.state.surge.lacks), why].concat()));
    }
    let places = document.plan.as_ref().map(room::places).unwrap_or_default();
    let order = document.plan.and_then(|plan| plan.scheduling).map(|scheduling| scheduling.order).unwrap_or_default();
    ctx.state.surge.plan = Some(SurgePlan { id: document.id, moves, order, places });
    Outcome::output(document.id)
}

pub(super) async fn make_room(ctx: &mut Ctx<Update>, _: &mut PgConnection) -> Result<Vec<Child>, StepError> {
    let Some(SurgePlan { id: plan, moves, order, mut places }) = ctx.state.surge.plan.clone() else { return Ok(Vec::new()) };
    ctx.progress(format!("waiting for room: {} to move", moves.len()));
    let apps = beside(&ctx.input.kept, ctx.round == 1);
    places.retain(|(app, _)| apps.iter().any(|request| request.app == *app));
    let id = ctx.derived_id(CHILD);
    ctx.state.surge.made = places.iter().map(|(app, member)| relocate::binding_id(id, app, member)).collect();
    let newcomer = Newcomer { dig: ctx.input.dig.clone(), apps, places, operation: ctx.id };
    let newcomer = Some(newcomer).filter(|newcomer| !newcomer.places.is_empty());
    let order = relocate::Order { plan, subject: subject(&ctx.input.dig), moves, order, newcomer };
    Ok(vec![Child::new::<Relocate>(id, &order)?])
}

/// Undo: nobody needs the room that was made.
pub(super) async fn release_room(ctx: &mut Ctx<Update>) -> StepResult {
    room::release_made(ctx, CHILD).await
}

pub(super) async fn room_made(ctx: &mut Ctx<Update>, _: &mut PgConnection) -> StepResult {
    let Some(child) = ctx.children.first() else { return Ok(Outcome::next()) };
    if child.done {
        return Ok(Outcome::Repeat(RAISE));
    }
    // It has released what it had claimed.
    ctx.state.surge.made.clear();
    let failure = child.failure.clone().unwrap_or_else(|| Failure {
        code: "internal".into(),
        message: "the relocation ended without a result".into(),
        reasons: vec![],
    });
    let replan =
        matches!(failure.code.as_str(), "room_lost" | "victim_busy" | "world_changed" | "plan_not_proposed" | "destination_not_ready");
    if replan && ctx.round <= REPLANS {
        ctx.progress(format!("planning again: {}", failure.message));
        return Ok(Outcome::Repeat(RAISE));
    }
    Err(StepError::Fail(failure))
}
