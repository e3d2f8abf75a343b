//! The first step of each round: one decision for all apps, which claims their room in the same transaction.

use drover_api::plans::PlanOrder;
use drover_api::scheduling::{AppDecision, GroupDecision, Outcome as Decided, Verdict};
use drover_workflow::{Ctx, Outcome, StepError, StepResult};

use super::plan::plan_order;
use super::{
    RESTART_GRACE, RETRY_INTERVAL, SearchState, SeeksRoom, ask, placed, reasons, release_decided, search, turn, wait_for_clusters,
};
use crate::store::planning_queue::Until;

pub(in super::super) async fn decide<W: SeeksRoom>(ctx: &mut Ctx<W>) -> StepResult {
    start_round(ctx);
    let round = ctx.round;
    if round > 1 {
        turn::give_back(ctx, Until::Later).await?;
    }
    let search = search(ctx);
    if search.apps.is_empty() || search.chosen_by_user(round).is_some() {
        return Ok(Outcome::next());
    }
    let name = decision_name(search.state, round);
    ctx.progress("looking for room");
    let decision = ask(ctx, &name, false).await?;
    match decision.outcome {
        Decided::Placed => {
            let state = super::search(ctx).state;
            (state.placed, state.order) = (placed(&decision.apps), decision.order);
            if round > 1 {
                turn::leave(ctx, ctx.id, None).await?;
            }
            Outcome::output(decision.id)
        }
        // Unknown is not "no room": wait for the cluster instead of failing, each time with a new decision. The wait is short where
        // the other clusters have room or can make some.
        Decided::Unknown
            if ctx.waited() < ctx.environment.deadlines.room
                && (ctx.waited() < RESTART_GRACE || !others_suffice(ctx, decision.seq).await?) =>
        {
            *super::search(ctx).state.tries.entry(round).or_default() += 1;
            let pause = if ctx.waited() < RESTART_GRACE { RETRY_INTERVAL } else { RESTART_GRACE };
            Ok(wait_for_clusters(ctx, pause))
        }
        // Silent clusters are left out; there may be a plan for the others, or room at less preferred members.
        Decided::NoRoom | Decided::Unknown => {
            let state = super::search(ctx).state;
            state.seq = decision.seq;
            state.silent = decision.outcome == Decided::Unknown;
            state.reasons = reasons(&decision);
            Outcome::output(decision.id)
        }
        Decided::Impossible => {
            let apps: Vec<&str> = decision.apps.iter().filter(|app| impossible(app)).map(|app| app.app.as_str()).collect();
            let message = format!("no cluster that is allowed for {} may be used now", apps.join(", "));
            Err(StepError::fail("unknown_cluster", message).reasons(reasons(&decision)))
        }
    }
}

/// Whether an app may run on no cluster that its placement names, whether that has room or not.
fn impossible(app: &AppDecision) -> bool {
    let closed = |group: &GroupDecision| group.considered.iter().all(|considered| considered.verdict == Verdict::NotAllowed);
    app.groups.is_empty() || app.groups.iter().any(|group| group.placement.is_none() && closed(group))
}

/// Clears the state of the previous round. The counts of decisions stay: undo of the earlier rounds needs them.
fn start_round<W: SeeksRoom>(ctx: &mut Ctx<W>) {
    let before = std::mem::take(search(ctx).state);
    ctx.state = W::next_round(std::mem::take(&mut ctx.state));
    let SearchState { tries, overflow_tries, refused, avoided, asked, hopes, priority, .. } = before;
    *search(ctx).state = SearchState { tries, overflow_tries, refused, avoided, asked, hopes, priority, ..SearchState::default() };
}

fn decision_name(state: &SearchState, round: i32) -> String {
    format!("decision/{}", state.tries.get(&round).copied().unwrap_or_default())
}

/// Whether the clusters that answer suffice: they have room at less preferred members for an app that insists on its best provider,
/// or others can make room.
async fn others_suffice<W: SeeksRoom>(ctx: &mut Ctx<W>, seq: i64) -> Result<bool, StepError> {
    let (operation, fence) = (ctx.id, ctx.fence);
    let search = search(ctx);
    if search.insists() {
        let request = search.decision_request(operation, fence, true);
        if ctx.environment.services.placement.decide_dry(&request).await?.outcome == Decided::Placed {
            return Ok(true);
        }
    }
    let order = PlanOrder { dry_run: true, ..plan_order(ctx, seq).await? };
    // Without migration there are no moves.
    Ok(ctx.environment.services.migration.plan(ctx.derived_id("plan/dry"), &order).await.is_ok_and(|document| document.plan.is_some()))
}

pub(in super::super) async fn release_decision<W: SeeksRoom>(ctx: &mut Ctx<W>) -> StepResult {
    turn::leave(ctx, ctx.id, None).await?;
    let round = ctx.round;
    let search = search(ctx);
    if !search.apps.is_empty() && search.chosen_by_user(round).is_none() {
        let name = decision_name(search.state, round);
        release_decided(ctx, &name, false).await?;
    }
    Ok(Outcome::next())
}
