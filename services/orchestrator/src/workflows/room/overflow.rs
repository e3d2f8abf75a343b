//! The last step of a round without room and without a plan: apps that insist on their best provider may go to others.

use std::collections::BTreeSet;

use drover_api::scheduling::Outcome as Decided;
use drover_workflow::{Ctx, Failure, Outcome, StepError, StepResult};
use serde_json::Value;

use super::{RETRY_INTERVAL, SeeksRoom, ask, placed, reasons, release_decided, search, wait_for_clusters};

pub(in super::super) async fn overflow<W: SeeksRoom>(ctx: &mut Ctx<W>) -> StepResult {
    let round = ctx.round;
    let current = search(ctx);
    if !current.state.is_open(current.apps) || current.state.plan.is_some() {
        return Ok(Outcome::next());
    }
    if current.insists() {
        let tries = *current.state.overflow_tries.entry(round).or_default();
        let silent = current.state.silent;
        let decision = ask(ctx, &overflow_name(tries), true).await?;
        if decision.outcome == Decided::Unknown && !silent && ctx.waited() < ctx.environment.deadlines.room {
            search(ctx).state.overflow_tries.insert(round, tries + 1);
            return Ok(wait_for_clusters(ctx, RETRY_INTERVAL));
        }
        let state = search(ctx).state;
        if decision.outcome == Decided::Placed {
            (state.placed, state.order) = (placed(&decision.apps), decision.order);
            return Outcome::output(decision.id);
        }
        state.reasons.extend(reasons(&decision));
        state.silent |= decision.outcome == Decided::Unknown;
    }
    let state = search(ctx).state;
    let mut seen = BTreeSet::new();
    let reasons: Vec<String> = std::mem::take(&mut state.reasons).into_iter().filter(|reason| seen.insert(reason.clone())).collect();
    if let Some(Failure { code, message, reasons: refused }) = state.refused.take() {
        let message = format!("{message}; there is no other plan");
        let reasons = refused.into_iter().chain(reasons.into_iter().map(Value::from)).collect();
        return Err(StepError::Fail(Failure { code, message, reasons }));
    }
    let (code, message) = match state.silent {
        true => ("capacity_unknown", "the clusters that answer have no room and no plan makes any; the other clusters are silent"),
        false => ("plan_infeasible", "no allowed cluster has room, and no plan makes any"),
    };
    Err(StepError::fail(code, message).reasons(reasons))
}

/// Releases what this round's overflow claimed. A round that had room or a plan never asked for one, and undo must not either.
pub(in super::super) async fn release_overflow<W: SeeksRoom>(ctx: &mut Ctx<W>) -> StepResult {
    let round = ctx.round;
    let search = search(ctx);
    if let Some(tries) = search.state.overflow_tries.get(&round).copied().filter(|_| search.insists()) {
        release_decided(ctx, &overflow_name(tries), true).await?;
    }
    Ok(Outcome::next())
}

fn overflow_name(tries: u32) -> String {
    format!("overflow/{tries}")
}
