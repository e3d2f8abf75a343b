//! Whether an app whose pods found no nodes can go elsewhere, or get room where it is.

use drover_api::plans::PlanOrder;
use drover_api::scheduling::{DecisionRequest, Outcome as Decided, PlanKind, RefusedDestination};
use drover_workflow::{Ctx, StepError};

use super::{SeeksRoom, plan::plan_order, search};
use crate::store::binding::Binding;

/// Records that the pods of `copy` found no nodes, so that later rounds place it elsewhere, and asks whether there is another place, as
/// it is or after moves. The other apps of the group keep their claims meanwhile.
pub(in super::super) async fn has_other_place<W: SeeksRoom>(ctx: &mut Ctx<W>, copy: &Binding, reason: &str) -> Result<bool, StepError> {
    let refused = RefusedDestination { dig: copy.dig.id, app: copy.app.clone(), member: copy.member.clone(), reason: reason.to_owned() };
    let avoided = &mut search(ctx).state.avoided;
    if !avoided.iter().any(|known| known.app == refused.app && known.member == refused.member) {
        avoided.push(refused);
    }
    let (operation, fence) = (ctx.id, ctx.fence);
    let apps = vec![copy.request.clone()];
    let request = DecisionRequest { apps: apps.clone(), ..search(ctx).decision_request(operation, fence, false) };
    let services = ctx.environment.services.clone();
    if services.placement.decide_dry(&request).await?.outcome == Decided::Placed {
        return Ok(true);
    }
    let kind = PlanKind::Newcomer { dig: copy.dig.clone(), apps };
    let order = PlanOrder { kind, dry_run: true, after_seq: None, ..plan_order(ctx, 0).await? };
    Ok(services.migration.plan(ctx.derived_id("plan/other-place"), &order).await.is_ok_and(|document| document.plan.is_some()))
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
