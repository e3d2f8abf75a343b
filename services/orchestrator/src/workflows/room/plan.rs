//! The plan of a round without room: which apps move to make some. A plan claims nothing.

use std::collections::BTreeSet;

use drover_api::plans::{PlanDocument, PlanOrder, PlanState, PlanSubject};
use drover_api::scheduling::{Infeasible, Plan, PlanKind};
use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use uuid::Uuid;

use super::super::relocate;
use super::{ChosenPlan, RETRY_INTERVAL, Search, SeeksRoom, search, wait_for_clusters};
use crate::store::hold;

pub(in super::super) async fn plan<W: SeeksRoom>(ctx: &mut Ctx<W>) -> StepResult {
    ctx.progress("no cluster has room; looking for apps that can be moved");
    let round = ctx.round;
    let document = match search(ctx).chosen_by_user(round) {
        Some(id) => chosen_by_user(ctx, id).await?,
        None => {
            let (seq, silent) = (search(ctx).state.seq, search(ctx).state.silent);
            // Silent clusters have been waited for already. Otherwise "no plan" is final only when all clusters are known.
            let patient = !silent && ctx.waited() < ctx.world.deadlines.room;
            let order = PlanOrder { patient, ..plan_order(ctx, seq).await? };
            match ctx.world.services.migration.plan(ctx.derived_id("plan"), &order).await {
                Err(error) if patient && error.code() == Some("capacity_unknown") => return Ok(wait_for_clusters(ctx, RETRY_INTERVAL)),
                planned => planned?,
            }
        }
    };
    let search = search(ctx);
    if let Some(plan) = &document.plan {
        search.state.plan = Some(accept(&search, document.id, plan)?);
    } else {
        // Journaled before the decision that may follow it, so that undo of this round knows of that.
        search.state.overflow_tries.entry(round).or_default();
        if let Some(infeasible) = &document.infeasible {
            search.state.reasons.extend(why_infeasible(infeasible));
            search.state.silent |= !infeasible.awaited.is_empty();
        }
    }
    Outcome::output(document.id)
}

fn accept(search: &Search<'_>, id: Uuid, plan: &Plan) -> Result<ChosenPlan, StepError> {
    let planned: BTreeSet<&str> = plan.newcomer.iter().map(|app| app.app.as_str()).collect();
    if planned != search.apps.iter().map(|delivery| delivery.app()).collect() {
        return Err(StepError::fail("world_changed", "the plan was made for other apps than are approved now"));
    }
    let moves = relocate::single_wave(plan).map_err(|error| StepError::fail("not_yet", error.to_string()))?;
    let newcomer = plan.newcomer.iter().flat_map(|app| app.groups.iter().map(|group| (app.app.clone(), group.placement.clone())));
    Ok(ChosenPlan { id, moves, newcomer: newcomer.filter_map(|(app, place)| Some((app, place?.member))).collect() })
}

fn why_infeasible(infeasible: &Infeasible) -> impl Iterator<Item = String> {
    let members = infeasible.members.iter().map(|why| format!("{}: {}", why.member, why.reason));
    let candidates = infeasible.candidates.iter().filter_map(|candidate| {
        let why = candidate.why_not.as_ref()?;
        Some(format!("{}/{} on {}: {}", candidate.dig.name, candidate.app, candidate.member, why.detail))
    });
    members.chain(candidates)
}

/// A plan for the group on a ledger that knows of decision `seq`.
pub(super) async fn plan_order<W: SeeksRoom>(ctx: &mut Ctx<W>, seq: i64) -> Result<PlanOrder, StepError> {
    let excluded = hold::busy(&mut *ctx.world.store.pool().acquire().await?).await?;
    let search = search(ctx);
    let kind = PlanKind::Newcomer { dig: search.dig.clone(), apps: search.requests() };
    Ok(PlanOrder { kind, excluded, dry_run: false, patient: false, after_seq: Some(seq) })
}

async fn chosen_by_user<W: SeeksRoom>(ctx: &mut Ctx<W>, id: Uuid) -> Result<PlanDocument, StepError> {
    let document =
        ctx.world.services.migration.plan_read(id).await?.ok_or_else(|| StepError::fail("not_found", format!("there is no plan {id}")))?;
    match (&document.kind, document.state) {
        (PlanSubject::Newcomer(dig), PlanState::Proposed) if dig.id == search(ctx).dig.id => Ok(document),
        (_, PlanState::Proposed) => {
            Err(StepError::fail("plan_not_proposed", format!("the plan {id} is not for this deployment intent group")))
        }
        (_, state) => Err(StepError::fail("plan_not_proposed", format!("the plan {id} is {state:?}").to_lowercase())),
    }
}
