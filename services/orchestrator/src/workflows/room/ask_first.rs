//! Asks the members of a plan whether they would accept the objects of the newcomer, before anything is moved for it.
//!
//! Some refusals may end with the moves: a quota that the victims use, a name or a port that they have. Where nothing else speaks against a
//! member, it is used if there is no plan for another one.

use std::time::Duration;

use drover_api::bindings::PreflightAnswer;
use drover_api::scheduling::{MemberKey, Plan};
use drover_workflow::{Ctx, Failure, StepError};
use futures::future::join_all;
use tokio::time::timeout;
use uuid::Uuid;

use super::super::apply;
use super::{SeeksRoom, other_place, places, search};

/// How long a member may take to answer: other operations wait for their turn to plan meanwhile.
const LIMIT: Duration = Duration::from_secs(5);

/// Whether the members of `plan` accept the apps that it makes room for. Those that do not are left out of the next plan. Each is asked once.
///
/// # Errors
/// No member would accept an object, or one of a plan that a user chose would not.
pub(super) async fn accepted<W: SeeksRoom>(ctx: &mut Ctx<W>, plan: &Plan) -> Result<bool, StepError> {
    if !W::WRITES || plan.waves.iter().all(Vec::is_empty) {
        return Ok(true);
    }
    let (environment, operation, round) = (ctx.environment.clone(), ctx.id, ctx.round);
    let found = search(ctx);
    let by_user = found.chosen_by_user(round).is_some();
    let new = places(plan).into_iter().filter(|place| !found.state.asked.contains(place));
    let copies = new.map(|(app, member)| found.copy(&app, &member, Uuid::nil(), operation)).collect::<Result<Vec<_>, _>>()?;
    let answers = join_all(copies.iter().map(|copy| timeout(LIMIT, apply::preflight(&environment, copy)))).await;
    let mut accepted = true;
    for (copy, answer) in copies.iter().zip(answers) {
        // If it cannot be asked now, the answer comes when it is written to.
        let Ok(Ok(answer)) = answer else { continue };
        let lasting = other_place::remembered(&answer);
        let PreflightAnswer { reasons, elsewhere, may_end, .. } = answer;
        let (app, member) = (&copy.app, &copy.member);
        let place = (app.clone(), member.clone());
        search(ctx).state.asked.push(place.clone());
        if reasons.is_empty() {
            continue;
        }
        let failure =
            Failure { code: "preflight_failed".into(), message: format!("{app} on {member}: {}", reasons.join("; ")), reasons: vec![] };
        if by_user && may_end {
            continue;
        }
        if by_user || !(elsewhere || may_end) {
            return Err(StepError::Fail(failure));
        }
        let state = search(ctx).state;
        state.refused = Some(failure);
        if may_end {
            state.hopes.push(place);
        }
        other_place::refused(ctx, copy, reasons.join("; "), lasting.as_deref()).await?;
        accepted = false;
    }
    Ok(accepted)
}

/// Without a plan for other members, plans may use those again whose refusals may end with the moves. False if there are none.
pub(super) fn hopes<W: SeeksRoom>(ctx: &mut Ctx<W>) -> bool {
    let state = search(ctx).state;
    let hopes: Vec<(String, MemberKey)> = std::mem::take(&mut state.hopes);
    if hopes.is_empty() {
        return false;
    }
    state.avoided.retain(|avoided| !hopes.iter().any(|(app, member)| (app, member) == (&avoided.app, &avoided.member)));
    state.refused = None;
    true
}
