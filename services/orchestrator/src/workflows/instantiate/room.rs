//! Room for an instantiation: a decision, else a plan and those who move for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_api::plans::{PlanDocument, PlanOrder, PlanState, PlanSubject};
use drover_api::scheduling::{AppDecision, Decision, DecisionRequest, Outcome as Decided, PlanKind, WhenFull};
use drover_workflow::{Child, Ctx, Failure, Outcome, StepError, StepResult};
use sqlx::PgConnection;
use uuid::Uuid;

use super::super::relocate::{self, Newcomer, Relocate};
use super::super::{judge, now, release};
use super::{Chosen, Instantiate, Placed, REPLANS, State};
use crate::app::group::subject;
use crate::store::hold;

pub(super) async fn decide(ctx: &mut Ctx<Instantiate>) -> StepResult {
    let tries = ctx.state.tries.get(&ctx.round).copied().unwrap_or_default();
    ctx.state = State { tries: std::mem::take(&mut ctx.state.tries), ..State::default() };
    if ctx.input.plan.is_some() && ctx.round == 1 {
        return Ok(Outcome::next());
    }
    ctx.progress("looking for room");
    let decision = ask(ctx, &decision_name(tries), false).await?;
    match decision.outcome {
        Decided::Placed => {
            ctx.state.placed = placed(&decision.apps);
            Outcome::output(decision.id)
        }
        // Unknown is not "no room": wait for the member rather than reject. Each look is a decision of its own.
        Decided::Unknown if ctx.waited() < ctx.world.deadlines.room => {
            ctx.state.tries.insert(ctx.round, tries + 1);
            ctx.progress("waiting to hear from the clusters that it may run on");
            Ok(Outcome::park::<String>([]).until(judge::after(now(), Duration::from_secs(1))))
        }
        // Whoever stays silent for so long takes no part; there may be a plan for the others, or room at less preferred ones.
        Decided::NoRoom | Decided::Unknown => {
            ctx.state.seq = decision.seq;
            ctx.state.silent = decision.outcome == Decided::Unknown;
            ctx.state.reasons = reasons(&decision);
            Outcome::output(decision.id)
        }
        Decided::Impossible => Err(StepError::fail("unknown_cluster", "an app may run nowhere").reasons(reasons(&decision))),
    }
}

fn decision_name(tries: u32) -> String {
    format!("decision/{tries}")
}

async fn ask(ctx: &Ctx<Instantiate>, name: &str, overflow: bool) -> Result<Decision, StepError> {
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let request = DecisionRequest { dig: ctx.input.dig.clone(), apps: ctx.input.requests(), overflow, operation: ctx.id, fence };
    Ok(ctx.world.services.placement.decide(ctx.derived_id(name), &request).await?)
}

fn placed(apps: &[AppDecision]) -> Vec<Placed> {
    let placement = |app: &AppDecision| {
        let name = app.app.clone();
        app.groups
            .iter()
            .filter_map(|group| group.placement.clone())
            .map(move |place| Placed { app: name.clone(), member: place.member, binding: place.binding })
            .collect::<Vec<_>>()
    };
    apps.iter().flat_map(placement).collect()
}

/// Why an app that was not placed fits nowhere.
pub fn reasons(decision: &Decision) -> Vec<String> {
    let of_app = |app: &AppDecision| {
        let name = app.app.clone();
        app.groups
            .iter()
            .filter(|group| group.placement.is_none())
            .flat_map(|group| group.considered.clone())
            .map(move |considered| format!("{name}: {}: {}", considered.member, considered.reason))
            .collect::<Vec<_>>()
    };
    decision.apps.iter().flat_map(of_app).collect()
}

/// The decision may still be on its way: asking again under the same id settles that it is made, then its claims go.
pub(super) async fn give_back_decision(ctx: &mut Ctx<Instantiate>) -> StepResult {
    if ctx.input.plan.is_some() && ctx.round == 1 {
        return Ok(Outcome::next());
    }
    let tries = ctx.state.tries.get(&ctx.round).copied().unwrap_or_default();
    give_back(ctx, &decision_name(tries), false).await
}

async fn give_back(ctx: &mut Ctx<Instantiate>, name: &str, overflow: bool) -> StepResult {
    let decision = ask(ctx, name, overflow).await?;
    let claims: Vec<_> = placed(&decision.apps).into_iter().map(|placed| placed.binding).collect();
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    release::release_unexplained(&ctx.world, ctx.derived_id(&format!("{name}/release")), ctx.id, fence, &claims).await?;
    Ok(Outcome::next())
}

pub(super) async fn plan(ctx: &mut Ctx<Instantiate>) -> StepResult {
    if !ctx.state.placed.is_empty() {
        return Ok(Outcome::next());
    }
    ctx.progress("nothing has room; looking for others that may move");
    let document = match ctx.input.plan.filter(|_| ctx.round == 1) {
        Some(id) => chosen_by_user(ctx, id).await?,
        None => {
            let excluded = busy(ctx).await?;
            let kind = PlanKind::Newcomer { dig: ctx.input.dig.clone(), apps: ctx.input.requests() };
            let order = PlanOrder { kind, excluded, dry_run: false, after_seq: Some(ctx.state.seq) };
            ctx.world.services.migration.plan(ctx.derived_id("plan"), &order).await?
        }
    };
    if let Some(plan) = &document.plan {
        let planned: BTreeSet<&str> = plan.newcomer.iter().map(|app| app.app.as_str()).collect();
        if planned != ctx.input.apps.iter().map(|delivery| delivery.app()).collect() {
            return Err(StepError::fail("world_changed", "the plan was made for other apps than are approved now"));
        }
        if plan.waves.len() > 1 {
            return Err(StepError::fail("not_yet", "plans of several waves are carried out by a later version"));
        }
        let newcomer = plan.newcomer.iter().flat_map(|app| app.groups.iter().map(|group| (app.app.clone(), group.placement.clone())));
        ctx.state.plan = Some(Chosen {
            id: document.id,
            moves: plan.waves.iter().flatten().cloned().collect(),
            newcomer: newcomer.filter_map(|(app, place)| Some((app, place?.member))).collect(),
        });
    } else if let Some(infeasible) = &document.infeasible {
        let members = infeasible.members.iter().map(|why| format!("{}: {}", why.member, why.reason));
        let candidates = infeasible.candidates.iter().filter_map(|candidate| {
            candidate
                .why_not
                .as_ref()
                .map(|why| format!("{}/{} on {}: {}", candidate.dig.name, candidate.app, candidate.member, why.detail))
        });
        ctx.state.reasons.extend(members.chain(candidates));
    }
    Outcome::output(document.id)
}

async fn chosen_by_user(ctx: &Ctx<Instantiate>, id: Uuid) -> Result<PlanDocument, StepError> {
    let document =
        ctx.world.services.migration.plan_read(id).await?.ok_or_else(|| StepError::fail("not_found", format!("there is no plan {id}")))?;
    match (&document.kind, document.state) {
        (PlanSubject::Newcomer(dig), PlanState::Proposed) if dig.id == ctx.input.dig.id => Ok(document),
        (_, PlanState::Proposed) => {
            Err(StepError::fail("plan_not_proposed", format!("the plan {id} is not for this deployment intent group")))
        }
        (_, state) => Err(StepError::fail("plan_not_proposed", format!("the plan {id} is {state:?}").to_lowercase())),
    }
}

/// Groups that others work on: no use to plan with them.
async fn busy(ctx: &Ctx<Instantiate>) -> Result<BTreeMap<Uuid, String>, StepError> {
    let held = hold::all(&mut *ctx.world.store.pool().acquire().await?).await?;
    let others = held.into_iter().filter(|(_, holder)| *holder != ctx.id);
    Ok(others.map(|(dig, holder)| (dig, format!("operation {holder} works on it"))).collect())
}

pub(super) async fn overflow(ctx: &mut Ctx<Instantiate>) -> StepResult {
    if !ctx.state.placed.is_empty() || ctx.state.plan.is_some() {
        return Ok(Outcome::next());
    }
    if ctx.input.apps.iter().any(|app| app.request.terms.when_full == WhenFull::Preferred) {
        let decision = ask(ctx, "overflow", true).await?;
        if decision.outcome == Decided::Placed {
            ctx.state.placed = placed(&decision.apps);
            return Outcome::output(decision.id);
        }
        ctx.state.reasons.extend(reasons(&decision));
    }
    let mut reasons = std::mem::take(&mut ctx.state.reasons);
    reasons.dedup();
    let (code, words) = match ctx.state.silent {
        true => ("capacity_unknown", "the clusters that answer have no room and no plan makes any; of others nothing is known"),
        false => ("plan_infeasible", "no allowed cluster has room, and no plan makes any"),
    };
    Err(StepError::fail(code, words).reasons(reasons))
}

pub(super) async fn give_back_overflow(ctx: &mut Ctx<Instantiate>) -> StepResult {
    if ctx.state.plan.is_some() || !ctx.input.apps.iter().any(|app| app.request.terms.when_full == WhenFull::Preferred) {
        return Ok(Outcome::next());
    }
    give_back(ctx, "overflow", true).await
}

pub(super) async fn start_moving(ctx: &mut Ctx<Instantiate>, _: &mut PgConnection) -> Result<Vec<Child>, StepError> {
    let Some(plan) = ctx.state.plan.clone().filter(|_| ctx.state.placed.is_empty()) else { return Ok(Vec::new()) };
    ctx.state.waiting_for_room = true;
    ctx.progress(format!("waiting for room: {} to move", plan.moves.len()));
    let id = ctx.derived_id("relocate");
    let newcomer = Newcomer { dig: ctx.input.dig.clone(), apps: ctx.input.requests(), places: plan.newcomer.clone() };
    ctx.state.placed = newcomer
        .places
        .iter()
        .map(|(app, member)| Placed { app: app.clone(), member: member.clone(), binding: relocate::binding_id(id, app, member) })
        .collect();
    let order = relocate::Order { plan: plan.id, subject: subject(&ctx.input.dig), moves: plan.moves, newcomer: Some(newcomer) };
    Ok(vec![Child::new::<Relocate>(id, &order)?])
}

pub(super) async fn moved(ctx: &mut Ctx<Instantiate>, _: &mut PgConnection) -> StepResult {
    ctx.state.waiting_for_room = false;
    let Some(child) = ctx.children.first() else { return Ok(Outcome::next()) };
    if child.done {
        ctx.state.relocated = true;
        return Ok(Outcome::next());
    }
    let failure = child.failure.clone().unwrap_or_else(|| Failure {
        code: "internal".into(),
        message: "the move ended without a word".into(),
        reasons: vec![],
    });
    let by_user = ctx.input.plan.is_some() && ctx.round == 1;
    let anew = match failure.code.as_str() {
        "room_lost" => true,
        // A plan that a user chose is carried out as it is or not at all.
        "victim_busy" | "world_changed" | "plan_not_proposed" => !by_user,
        _ => false,
    };
    if anew && ctx.round <= REPLANS {
        ctx.progress(format!("planning anew: {}", failure.message));
        return Ok(Outcome::Repeat("decide"));
    }
    Err(StepError::Fail(failure))
}

/// What the child claimed for us is ours to give back; if it failed it has done so itself.
pub(super) async fn give_back_room(ctx: &mut Ctx<Instantiate>) -> StepResult {
    let child = ctx.derived_id("relocate");
    let claims = ctx.world.services.placement.claims_of(child).await?;
    let ours: Vec<_> = claims.iter().filter(|claim| claim.dig.id == ctx.input.dig.id).map(|claim| claim.id).collect();
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    release::release_unexplained(&ctx.world, ctx.derived_id("room/release"), ctx.id, fence, &ours).await?;
    Ok(Outcome::next())
}
