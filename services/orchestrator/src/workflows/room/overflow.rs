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
    let reasons = without_repeats(std::mem::take(&mut state.reasons));
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

/// Each reason once. A decision says `app: cluster: why`, and the search for a plan `cluster: app: why`, often with more to it.
fn without_repeats(reasons: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let told: Vec<String> = reasons.into_iter().filter(|reason| seen.insert(reason.clone())).collect();
    let again = |reason: &&String| {
        let mut parts = reason.splitn(3, ": ");
        let (Some(app), Some(cluster), Some(why)) = (parts.next(), parts.next(), parts.next()) else { return false };
        let other_way_round = format!("{cluster}: {app}: {why}");
        told.iter().any(|told| told.starts_with(&other_way_round))
    };
    told.iter().filter(|reason| !again(reason)).cloned().collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_say_the_same_in_another_order_are_told_once() {
        let told = ["web: onprem+a: cpu: needs 2", "web: onprem+b: is silent", "onprem+a: web: cpu: needs 2; no app on it may move"];
        let told = told.map(str::to_owned).to_vec();
        let twice = [told.clone(), told.clone()].concat();
        assert_eq!(without_repeats(twice), told[1..]);
    }
}
