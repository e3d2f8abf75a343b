//! Whether an app that could not run where it was placed can go elsewhere, or get room where it is.

use drover_api::bindings::PreflightAnswer;
use drover_api::plans::PlanOrder;
use drover_api::scheduling::{DecisionRequest, MemberKey, Outcome as Decided, PlanKind, RefusedDestination};
use drover_workflow::{Ctx, StepError};

use super::super::apply;
use super::{SeeksRoom, placed, places, plan::plan_order, reasons, search};
use crate::store::binding::Binding;
use crate::store::refusal;

/// Records that the pods of `copy` found no nodes, so that later rounds place it elsewhere, and asks whether there is another place, as
/// it is or after moves. The other apps of the group keep their claims meanwhile.
pub(in super::super) async fn has_other_place<W: SeeksRoom>(ctx: &mut Ctx<W>, copy: &Binding, reason: &str) -> Result<bool, StepError> {
    avoid(ctx, copy, format!("its pods found no nodes there: {}", without_place(copy, reason)), false);
    Ok(other_places(ctx, copy).await?.is_ok())
}

/// Records that the member of `copy` refused its objects, and looks for another one, as it is or after moves. Each is asked first whether
/// it would accept them, so that nothing is moved for an app that is refused there too. An app that stays together with `others` goes nowhere
/// else. `Err`: why it cannot run on any of its members.
pub(in super::super) async fn accepted_elsewhere<W: SeeksRoom>(
    ctx: &mut Ctx<W>,
    copy: &Binding,
    reason: &str,
    lasting: Option<&str>,
    others: &[String],
) -> Result<Result<(), Vec<String>>, StepError> {
    let reason = without_place(copy, reason).to_owned();
    if let Some(stays) = stays_with(&copy.app, others) {
        return Ok(Err(vec![format!("{}: {}: {reason}", copy.app, copy.member), stays]));
    }
    refused(ctx, copy, reason, lasting).await?;
    loop {
        let places = match other_places(ctx, copy).await? {
            Ok(places) => places,
            Err(reasons) => return Ok(Err(reasons)),
        };
        let mut accepted = true;
        for place in places {
            let there = Binding { member: place.clone(), ..copy.clone() };
            let against = apply::preflight(&ctx.environment.clone(), &there).await?;
            if !against.reasons.is_empty() {
                refused(ctx, &there, against.reasons.join("; "), remembered(&against).as_deref()).await?;
                accepted = false;
            }
        }
        if accepted {
            return Ok(Ok(()));
        }
    }
}

/// The text of a reason that begins with the app and its place.
fn without_place<'r>(copy: &Binding, reason: &'r str) -> &'r str {
    reason.strip_prefix(&format!("{} on {}: ", copy.app, copy.member)).unwrap_or(reason)
}

/// What of an answer is remembered beyond this operation: what is in the member and does not end by itself.
pub(super) fn remembered(answer: &PreflightAnswer) -> Option<String> {
    (answer.elsewhere && !answer.lasting.is_empty()).then(|| answer.lasting.join("; "))
}

/// Records that the objects of `copy` are refused on its member, and what of it is `lasting` for later questions.
pub(super) async fn refused<W: SeeksRoom>(
    ctx: &mut Ctx<W>,
    copy: &Binding,
    reason: String,
    lasting: Option<&str>,
) -> Result<(), StepError> {
    if let Some(lasting) = lasting {
        let mut tx = ctx.environment.transaction(ctx.id, ctx.fence).await?;
        refusal::record(&mut tx, copy, lasting).await?;
        tx.commit().await?;
    }
    avoid(ctx, copy, reason, true);
    Ok(())
}

fn avoid<W: SeeksRoom>(ctx: &mut Ctx<W>, copy: &Binding, reason: String, refuses: bool) {
    let refused = RefusedDestination { dig: copy.dig.id, app: copy.app.clone(), member: copy.member.clone(), reason, refuses };
    let avoided = &mut search(ctx).state.avoided;
    avoided.retain(|known| known.app != refused.app || known.member != refused.member);
    avoided.push(refused);
}

/// What people are told of an app that its call graph keeps together with these, which run; `None` if there are none.
pub fn stays_with(app: &str, others: &[String]) -> Option<String> {
    (!others.is_empty())
        .then(|| format!("{app}: its call graph keeps it together with {}, so no other cluster is tried for it", others.join(", ")))
}

/// Where the app of `copy` would be placed without the members that later rounds avoid, as it is or after moves. `Err`: why nowhere.
async fn other_places<W: SeeksRoom>(ctx: &mut Ctx<W>, copy: &Binding) -> Result<Result<Vec<MemberKey>, Vec<String>>, StepError> {
    let (operation, fence) = (ctx.id, ctx.fence);
    let apps = vec![copy.request.clone()];
    let request = DecisionRequest { apps: apps.clone(), ..search(ctx).decision_request(operation, fence, false) };
    let services = ctx.environment.services.clone();
    let decision = services.placement.decide_dry(&request).await?;
    if decision.outcome == Decided::Placed {
        return Ok(Ok(placed(&decision.apps).into_iter().map(|placed| placed.member).collect()));
    }
    let kind = PlanKind::Newcomer { dig: copy.dig.clone(), apps };
    let order = PlanOrder { kind, dry_run: true, after_seq: None, ..plan_order(ctx, 0).await? };
    let tried = search(ctx).state.avoided.len();
    let id = ctx.derived_id(&format!("plan/other-place/{tried}"));
    // Without migration there are no moves.
    let planned = services.migration.plan(id, &order).await.ok().and_then(|document| document.plan);
    if let Some(plan) = planned {
        return Ok(Ok(places(&plan).into_iter().map(|(_, member)| member).collect()));
    }
    if !search(ctx).insists() {
        return Ok(Err(reasons(&decision)));
    }
    let decision = services.placement.decide_dry(&DecisionRequest { overflow: true, ..request }).await?;
    Ok(match decision.outcome {
        Decided::Placed => Ok(placed(&decision.apps).into_iter().map(|placed| placed.member).collect()),
        _ => Err(reasons(&decision)),
    })
}

/// Whether moves would make room for `copy` on the member where its pods found no nodes. When it was placed there, the nodes that the pods
/// of others would get were not known yet. If so, later rounds may place it there again.
pub(in super::super) async fn moves_make_room<W: SeeksRoom>(ctx: &mut Ctx<W>, copy: &Binding) -> Result<bool, StepError> {
    search(ctx).state.avoided.retain(|avoided| (&avoided.app, &avoided.member) != (&copy.app, &copy.member));
    let kind = PlanKind::Newcomer { dig: copy.dig.clone(), apps: vec![copy.request.clone()] };
    let order = PlanOrder { kind, dry_run: true, after_seq: None, released: vec![copy.id], ..plan_order(ctx, 0).await? };
    let migration = ctx.environment.services.migration.clone();
    let planned = migration.plan(ctx.derived_id("plan/same-place"), &order).await;
    Ok(planned.is_ok_and(|document| document.plan.is_some_and(|plan| !plan.waves.is_empty())))
}
