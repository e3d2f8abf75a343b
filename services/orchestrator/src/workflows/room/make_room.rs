//! The moves that make room: a relocation as a child workflow. It ends when the claims of the apps that need room are held.

use std::time::Duration;

use drover_workflow::{Child, Ctx, Failure, Outcome, StepError, StepResult};
use sqlx::PgConnection;

use super::super::relocate::{self, Newcomer, Relocate};
use super::super::{now, release, subject};
use super::{PlacedApp, REPLANS, SeeksRoom, search};

pub(in super::super) async fn make_room<W: SeeksRoom>(ctx: &mut Ctx<W>, _: &mut PgConnection) -> Result<Vec<Child>, StepError> {
    let (id, operation) = (ctx.derived_id("relocate"), ctx.id);
    let search = search(ctx);
    let Some(plan) = search.state.plan.clone().filter(|_| search.state.placed.is_empty()) else { return Ok(Vec::new()) };
    let newcomer = Newcomer { dig: search.dig.clone(), apps: search.requests(), places: plan.newcomer, operation };
    search.state.waiting_for_room = true;
    search.state.placed = newcomer
        .places
        .iter()
        .map(|(app, member)| PlacedApp { app: app.clone(), member: member.clone(), binding: relocate::binding_id(id, app, member) })
        .collect();
    search.state.order = plan.newcomer_order;
    let (subject, moves) = (subject(search.dig), plan.moves);
    let order = relocate::Order { plan: plan.id, subject, moves, order: plan.order, newcomer: Some(newcomer) };
    ctx.progress(match order.moves.len() {
        0 => "waiting for room that other apps are leaving".to_owned(),
        count => format!("waiting for room: {count} to move"),
    });
    Ok(vec![Child::new::<Relocate>(id, &order)?])
}

pub(in super::super) async fn room_made<W: SeeksRoom>(ctx: &mut Ctx<W>, _: &mut PgConnection) -> StepResult {
    let round = ctx.round;
    search(ctx).state.waiting_for_room = false;
    let Some(child) = ctx.children.first() else { return Ok(Outcome::next()) };
    if child.done {
        search(ctx).state.relocated = true;
        return Ok(Outcome::next());
    }
    let failure = child.failure.clone().unwrap_or_else(|| Failure {
        code: "internal".into(),
        message: "the relocation ended without a result".into(),
        reasons: vec![],
    });
    let by_user = search(ctx).chosen_by_user(round).is_some();
    let replan = match failure.code.as_str() {
        "room_lost" => true,
        // A plan that a user chose is carried out as it is or not at all.
        "victim_busy" | "world_changed" | "plan_not_proposed" => !by_user,
        // The destinations that refused an app are recorded, and the next plan leaves them out.
        "destination_not_ready" if !by_user => {
            search(ctx).state.refused = Some(failure.clone());
            true
        }
        _ => false,
    };
    // Another operation took a victim's hold first. That says nothing about the plan, so it counts only against the time.
    let lost_hold = failure.code == "victim_busy" && search_time(ctx) < ctx.environment.deadlines.room;
    if replan && (round <= REPLANS || lost_hold) {
        ctx.progress(format!("planning again: {}", failure.message));
        return Ok(Outcome::Repeat(W::DECIDE));
    }
    Err(StepError::Fail(failure))
}

/// Time since the operation began.
fn search_time<W: SeeksRoom>(ctx: &Ctx<W>) -> Duration {
    Duration::try_from(now().duration_since(*ctx.created)).unwrap_or_default()
}

/// Releases what the child claimed for the apps of this workflow. A child that failed has released it itself.
pub(in super::super) async fn release_room<W: SeeksRoom>(ctx: &mut Ctx<W>) -> StepResult {
    release_made(ctx, "relocate").await
}

/// The same for the relocation of this name.
pub(in super::super) async fn release_made<W: SeeksRoom>(ctx: &mut Ctx<W>, child: &str) -> StepResult {
    let claims = ctx.environment.services.placement.claims_of(ctx.derived_id(child)).await?;
    let dig = search(ctx).dig.id;
    let own: Vec<_> = claims.iter().filter(|claim| claim.dig.id == dig).map(|claim| claim.id).collect();
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    release::release_unexplained(&ctx.environment, ctx.derived_id(&format!("{child}/release")), ctx.id, fence, &own).await?;
    Ok(Outcome::next())
}
