//! The plan of a round without room: which apps move to make some. A plan claims nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_api::plans::{PlanDocument, PlanOrder, PlanState, PlanSubject};
use drover_api::scheduling::{Candidate, Infeasible, MemberKey, Plan, PlanKind, PlanScheduling};
use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use uuid::Uuid;

use super::super::{now, readiness, relocate};
use super::{ChosenPlan, RETRY_INTERVAL, Search, SeeksRoom, ask_first, search, turn, wait_for_clusters};
use crate::environment::{OPERATION_ENDED, turn_key};
use crate::store::planning_queue::{Turn, Until};
use crate::store::{hold, refused_destination, revision};

/// How long an operation waits for its turn before it looks itself, for each operation in front of it. It is woken; this is for a
/// wake-up that got lost. If all looked at the same interval, they would keep connections from the one that plans.
const TURN_RETRY: Duration = Duration::from_secs(2);
/// Limit on that.
const LONGEST_TURN_RETRY: Duration = Duration::from_secs(30);
/// The same for an operation without a plan, which is woken when any operation ends.
const BLOCKED_RETRY: Duration = Duration::from_secs(5);

pub(in super::super) async fn plan<W: SeeksRoom>(ctx: &mut Ctx<W>) -> StepResult {
    let round = ctx.round;
    let document = match search(ctx).chosen_by_user(round) {
        Some(id) => chosen_by_user(ctx, id).await?,
        None => match planned(ctx).await? {
            Planned::Document(document) => *document,
            Planned::Wait(park) => return Ok(park),
        },
    };
    let refused = match &document.plan {
        Some(plan) => !ask_first::accepted(ctx, plan).await?,
        None => ask_first::hopes(ctx),
    };
    if refused {
        return again_soon(ctx, "looking for a plan with a cluster that accepts the objects").await;
    }
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
        turn::leave(ctx, ctx.id, None).await?;
    }
    Outcome::output(document.id)
}

/// How long an operation waits for pods of apps that have left. They are reported a second or two after they are gone.
const LEFTOVERS_GRACE: Duration = Duration::from_secs(15);

/// How long an operation waits for the nodes of pods that other operations are starting.
const STARTING_GRACE: Duration = Duration::from_secs(15);
/// Time between two plans of an operation that waits for one of these.
const REPLAN_INTERVAL: Duration = Duration::from_secs(1);

/// What came of asking for a plan.
enum Planned {
    Document(Box<PlanDocument>),
    /// Something else must happen first.
    Wait(Outcome),
}

async fn planned<W: SeeksRoom>(ctx: &mut Ctx<W>) -> Result<Planned, StepError> {
    let ledger_seq = match turn::take(ctx).await? {
        Turn::Granted { ledger_seq } => ledger_seq,
        Turn::Behind { ahead, .. } => {
            ctx.progress(format!("no cluster has room; waiting for a plan, {ahead} in front of it"));
            return Ok(Planned::Wait(Outcome::park([turn_key(ctx.id)]).until(readiness::after(now(), turn_retry(ahead)))));
        }
    };
    ctx.progress("no cluster has room; looking for apps that can be moved");
    let state = search(ctx).state;
    let (seq, silent, name) = (state.seq.max(ledger_seq), state.silent, format!("plan/{}", state.plan_tries));
    let in_time = ctx.waited() < ctx.environment.deadlines.room;
    // Silent clusters have been waited for already. Otherwise "no plan" is final only when all clusters are known.
    let patient = !silent && in_time;
    let order = PlanOrder { patient, ..plan_order(ctx, seq).await? };
    let document = match ctx.environment.services.migration.plan(ctx.derived_id(&name), &order).await {
        Err(error) if patient && error.code() == Some("capacity_unknown") => {
            turn::give_back(ctx, Until::Later).await?;
            return Ok(Planned::Wait(wait_for_clusters(ctx, RETRY_INTERVAL)));
        }
        planned => planned?,
    };
    if in_time && may_be_planned_later(ctx, &order, &document).await? {
        turn::give_back(ctx, Until::OperationEnds).await?;
        search(ctx).state.plan_tries += 1;
        ctx.progress("the apps that would have to move are being changed; waiting for these operations to end");
        return Ok(Planned::Wait(
            Outcome::park([OPERATION_ENDED.to_owned(), turn_key(ctx.id)]).until(readiness::after(now(), BLOCKED_RETRY)),
        ));
    }
    if in_time && document.infeasible.as_ref().is_some_and(|infeasible| !infeasible.leftovers.is_empty()) {
        let since = *search(ctx).state.leftovers_since.get_or_insert_with(now);
        if now() < readiness::after(since, LEFTOVERS_GRACE) {
            return Ok(Planned::Wait(again_soon(ctx, "waiting for the room of apps that have left").await?));
        }
    }
    let starting = |plan: &Plan| plan.scheduling.as_ref().is_some_and(|scheduling| !scheduling.starting.is_empty());
    if in_time && document.plan.as_ref().is_some_and(starting) {
        let since = *search(ctx).state.starting_since.get_or_insert_with(now);
        if now() < readiness::after(since, STARTING_GRACE) {
            return Ok(Planned::Wait(again_soon(ctx, "waiting until pods that are starting have nodes").await?));
        }
    }
    Ok(Planned::Document(Box::new(document)))
}

/// Lets others plan, and plans again in a moment.
async fn again_soon<W: SeeksRoom>(ctx: &mut Ctx<W>, why: &str) -> Result<Outcome, StepError> {
    search(ctx).state.plan_tries += 1;
    turn::give_back(ctx, Until::Later).await?;
    ctx.progress(why);
    Ok(Outcome::park::<String>([]).until(readiness::after(now(), REPLAN_INTERVAL)))
}

/// When an operation behind so many others looks again without having been woken.
fn turn_retry(ahead: i64) -> Duration {
    TURN_RETRY.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX)).clamp(TURN_RETRY, LONGEST_TURN_RETRY)
}

/// Whether there is no plan only because operations are changing the groups that would have to move: without those operations there
/// would be one.
async fn may_be_planned_later<W: SeeksRoom>(ctx: &mut Ctx<W>, order: &PlanOrder, document: &PlanDocument) -> Result<bool, StepError> {
    let busy = |candidate: &Candidate| candidate.why_not.as_ref().is_some_and(|why| why.code == "busy");
    if !document.infeasible.as_ref().is_some_and(|infeasible| infeasible.candidates.iter().any(busy)) {
        return Ok(false);
    }
    let own = search(ctx).dig.id;
    let excluded = order.excluded.iter().filter(|(dig, _)| **dig == own).map(|(dig, reason)| (*dig, reason.clone())).collect();
    let order = PlanOrder { excluded, dry_run: true, patient: false, ..order.clone() };
    Ok(ctx.environment.services.migration.plan(ctx.derived_id("plan/later"), &order).await?.plan.is_some())
}

fn accept(search: &Search<'_>, id: Uuid, plan: &Plan) -> Result<ChosenPlan, StepError> {
    let planned: BTreeSet<&str> = plan.newcomer.iter().map(|app| app.app.as_str()).collect();
    if planned != search.apps.iter().map(|delivery| delivery.app()).collect() {
        return Err(StepError::fail("world_changed", "the plan was made for other apps than are approved now"));
    }
    let moves = relocate::single_wave(plan).map_err(|error| StepError::fail("not_yet", error.to_string()))?;
    let PlanScheduling { order, newcomer_order, .. } = plan.scheduling.clone().unwrap_or_default();
    Ok(ChosenPlan { id, moves, newcomer: places(plan), order, newcomer_order })
}

/// Where a plan places the newcomer: a member for each copy of its apps.
pub(in super::super) fn places(plan: &Plan) -> Vec<(String, MemberKey)> {
    let newcomer = plan.newcomer.iter().flat_map(|app| app.groups.iter().map(|group| (app.app.clone(), group.placement.clone())));
    newcomer.filter_map(|(app, place)| Some((app, place?.member))).collect()
}

/// Why there is no plan, for people.
pub(in super::super) fn why_infeasible(infeasible: &Infeasible) -> impl Iterator<Item = String> + use<'_> {
    let members = infeasible.members.iter().map(|why| format!("{}: {}", why.member, why.reason));
    let candidates = infeasible.candidates.iter().filter_map(|candidate| {
        let why = candidate.why_not.as_ref()?;
        Some(format!("{}/{} on {}: {}", candidate.dig.name, candidate.app, candidate.member, why.detail))
    });
    members.chain(candidates)
}

/// A plan for the group on a ledger that knows of decision `seq`.
pub(in super::super) async fn plan_order<W: SeeksRoom>(ctx: &mut Ctx<W>, seq: i64) -> Result<PlanOrder, StepError> {
    let dig = search(ctx).dig.id;
    let mut connection = ctx.environment.store.acquire().await?;
    let (excluded, refused) = (hold::busy(&mut connection).await?, refused_destination::recent(&mut connection).await?);
    let movable_projects = revision::movable_projects(&mut connection, ctx.id, dig).await?;
    drop(connection);
    let operation = Some(ctx.id);
    let search = search(ctx);
    let refused = refused.into_iter().chain(search.state.avoided.iter().cloned()).collect();
    let kind = PlanKind::Newcomer { dig: search.dig.clone(), apps: search.requests() };
    let after_seq = Some(seq);
    let (released, search) = (Vec::new(), Default::default());
    Ok(PlanOrder { kind, excluded, refused, released, dry_run: false, patient: false, operation, after_seq, search, movable_projects })
}

async fn chosen_by_user<W: SeeksRoom>(ctx: &mut Ctx<W>, id: Uuid) -> Result<PlanDocument, StepError> {
    let document = ctx
        .environment
        .services
        .migration
        .plan_read(id)
        .await?
        .ok_or_else(|| StepError::fail("not_found", format!("there is no plan {id}")))?;
    match (&document.kind, document.state) {
        (PlanSubject::Newcomer(dig), PlanState::Proposed) if dig.id == search(ctx).dig.id => Ok(document),
        (_, PlanState::Proposed) => {
            Err(StepError::fail("plan_not_proposed", format!("the plan {id} is not for this deployment intent group")))
        }
        (_, state) => Err(StepError::fail("plan_not_proposed", format!("the plan {id} is {state:?}").to_lowercase())),
    }
}
