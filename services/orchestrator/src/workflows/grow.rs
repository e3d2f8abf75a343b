//! Growth of an app beyond the room of its copy: somebody else has scaled a workload, and its claim cannot follow. The additional pods are a
//! newcomer like any other, which may go only where the copy is: a decision, else a plan and the moves that it needs.
//!
//! The room is claimed under ids of its own while it is made. Pods that start in it meanwhile, or ran before without being claimed, are a part
//! of that claim ([`Demand::grows`]). In one ledger transaction these claims are then released and the claim of the copy grows. Nothing in a
//! member is changed but by the moves: the pods are there already and wait for nodes.

use std::sync::Arc;

use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_api::scheduling::{AppRequest, Demand, DigRef, Intent, PlacementTerms, PodGroup, WhenFull};
use drover_workflow::{Ctx, Outcome, Step, StepError, StepResult, Steps, Workflow};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::room::{self, Search, SearchState, SeeksRoom, targets};
use super::{Delivery, MIGRATION, PLACEMENT, only, reasons, wait_for_capacity};
use crate::environment::Environment;
use crate::store::binding::{self, Binding};
use crate::store::hold;

/// The input of a growth.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub dig: DigRef,
    /// The copy, with what it has claimed.
    pub copy: Binding,
    /// What it is to claim.
    pub request: AppRequest,
    /// The additional pods, as an app that may run only where the copy is.
    pub additional: Vec<Delivery>,
}

impl Order {
    /// The growth of a copy to `demand`.
    pub fn new(copy: Binding, demand: Demand) -> Self {
        let request = AppRequest { demand, ..copy.request.clone() };
        let terms = PlacementTerms {
            intent: Intent { all_of: Vec::new(), any_of: vec![only(&copy.member)] },
            when_full: WhenFull::Overflow,
            calls: None,
            ..request.terms.clone()
        };
        let demand = Demand { grows: Some(copy.id), ..additional(&copy.request.demand, &request.demand) };
        let additional = Delivery {
            request: AppRequest { app: copy.app.clone(), demand, terms },
            digest: copy.digest.clone(),
            namespace: copy.namespace.clone(),
            after: Vec::new(),
        };
        Self { dig: copy.dig.clone(), request, additional: vec![additional], copy }
    }
}

/// The pods that `wanted` has more than `claimed`.
fn additional(claimed: &Demand, wanted: &Demand) -> Demand {
    let more = |group: &PodGroup| {
        let before = claimed.groups.iter().find(|before| before.workload == group.workload).map_or(0, |before| before.replicas);
        let replicas = group.replicas.checked_sub(before).filter(|more| *more > 0)?;
        Some(PodGroup { replicas, surge: 0, ..group.clone() })
    };
    let groups = wanted.groups.iter().filter(|group| !group.per_node).filter_map(more).collect();
    Demand { groups, ..wanted.clone() }
}

/// The state of a growth.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GrowState {
    #[serde(default)]
    pub search: SearchState,
}

/// The workflow that makes room for an app where it runs.
pub struct Grow;

impl SeeksRoom for Grow {
    const DECIDE: &'static str = "decide";
    const WRITES: bool = false;
    fn search<'a>(order: &'a Order, state: &'a mut GrowState) -> Search<'a> {
        Search { dig: &order.dig, apps: &order.additional, chosen: None, state: &mut state.search }
    }
}

impl Workflow for Grow {
    const KIND: &'static str = "grow";
    const VERSION: i32 = 1;
    type Environment = Environment;
    type Input = Order;
    type State = GrowState;

    fn subject(order: &Order) -> String {
        super::subject(&order.dig)
    }

    fn steps() -> Steps<Self> {
        Steps::new()
            .step(Step::remote("decide", room::decide).at(PLACEMENT).undo(room::release_decision))
            .step(
                Step::remote("plan", room::plan)
                    .at(MIGRATION)
                    .when(|order: &Order, state: &GrowState| state.search.is_open(&order.additional)),
            )
            // There is no less preferred member for them; this fails with the reasons.
            .step(
                Step::remote("overflow", room::overflow)
                    .at(PLACEMENT)
                    .when(|order: &Order, state: &GrowState| state.search.is_open(&order.additional))
                    .undo(room::release_overflow),
            )
            // Apps that were moved stay where they are even if this workflow is undone.
            .step(
                Step::children("make_room", room::make_room, room::room_made)
                    .when(|_, state: &GrowState| state.search.plan.is_some())
                    .undo(room::release_room)
                    .undo_at(PLACEMENT),
            )
            // In one transaction, so that nobody takes the room in between.
            .step(Step::remote("swap", swap).at(PLACEMENT).undo(swap_back))
            .pivot(Step::local("keep", keep))
    }
}

async fn swap(ctx: &mut Ctx<Grow>) -> StepResult {
    ctx.progress("claiming the room");
    let made = targets(ctx)?;
    let mut changes: Vec<_> = made.iter().map(|target| LedgerChange::Release { claim: target.id }).collect();
    changes.push(resize(ctx, &ctx.input.request));
    match transact(ctx, "swap", changes).await? {
        Ok(()) => Ok(Outcome::next()),
        Err(error) if error.code() == Some("ledger_conflict") => {
            Err(StepError::fail("no_room", "the room that was made does not suffice for all pods together").reasons(reasons(&error)))
        }
        Err(error) => wait_for_capacity(ctx, error),
    }
}

async fn swap_back(ctx: &mut Ctx<Grow>) -> StepResult {
    let change = resize(ctx, &ctx.input.copy.request);
    match transact(ctx, "swap_back", vec![change]).await? {
        Ok(()) => Ok(Outcome::next()),
        Err(error) => Err(StepError::retry(format!("the claim is not resized yet: {error}: {}", reasons(&error).join("; ")))),
    }
}

fn resize(ctx: &Ctx<Grow>, request: &AppRequest) -> LedgerChange {
    LedgerChange::Resize { claim: ctx.input.copy.id, request: Arc::new(request.clone()), surge: false }
}

async fn transact(ctx: &Ctx<Grow>, name: &str, changes: Vec<LedgerChange>) -> Result<Result<(), crate::peers::PeerError>, StepError> {
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    let transaction = LedgerTransaction { operation: ctx.id, fence, changes };
    Ok(ctx.environment.services.placement.transact(ctx.derived_id(name), &transaction).await.map(drop))
}

async fn keep(ctx: &mut Ctx<Grow>, tx: &mut PgConnection) -> StepResult {
    let copy = &ctx.input.copy;
    binding::set_content(&mut *tx, copy.id, &copy.digest, &ctx.input.request, ctx.id).await?;
    hold::drop_all(tx, ctx.id).await?;
    ctx.progress("the app has room for all its pods");
    Ok(Outcome::next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additional_pods_are_those_that_are_not_claimed() {
        let group = |workload: &str, replicas, per_node| PodGroup {
            workload: workload.into(),
            replicas,
            surge: 1,
            per_node,
            ..PodGroup::default()
        };
        let demand = |groups| Demand { groups, ..Demand::default() };
        let claimed = demand(vec![group("Deployment/web", 2, false), group("Deployment/db", 3, false), group("DaemonSet/log", 1, true)]);
        let wanted = demand(vec![group("Deployment/web", 7, false), group("Deployment/db", 1, false), group("DaemonSet/log", 1, true)]);
        let more: Vec<_> =
            additional(&claimed, &wanted).groups.iter().map(|group| (group.workload.clone(), group.replicas, group.surge)).collect();
        assert_eq!(more, [("Deployment/web".to_owned(), 5, 0)]);
    }
}
