//! Updating a deployment intent group in place: room for the larger of old and new, new objects, and when these serve, the
//! new revision is current. An app never changes its cluster here. Before the pivot everything can be put back: the old
//! bundles are applied again and the claims are as before.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_api::scheduling::{AppRequest, DigRef};
use drover_workflow::{Ctx, Outcome, Step, StepError, StepResult, Steps, Workflow};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::bring::{Brought, Progress};
use super::remove::{self, Removal};
use super::room::{self, Search, Seeks, targets};
use super::{After, Delivery, MIGRATION, PLACEMENT, SYNCHRONIZER, reasons, unheard};
use crate::environment::Environment;
use crate::peers::PeerError;
use crate::store::binding::{self, Binding, Role};
use crate::store::deployment::{self, ApprovedApp, State as Lifecycle};
use crate::store::hold;

/// What to update to what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The group.
    pub dig: DigRef,
    /// Revision before.
    pub from_revision: i64,
    /// Revision that this makes.
    pub revision: i64,
    /// Bindings that stay where they are.
    pub kept: Vec<Kept>,
    /// Apps that the group did not have.
    pub added: Vec<Delivery>,
    /// Bindings of apps that the group no longer has.
    pub dropped: Vec<Uuid>,
    /// What the new revision is made of; what instantiate would use after a terminate.
    pub approved: Vec<ApprovedApp>,
    /// Who waits for whom, by app.
    #[serde(default)]
    pub after: BTreeMap<String, Vec<After>>,
}

/// A binding that is updated where it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// As it is.
    pub old: Binding,
    /// Its new bundle.
    pub digest: String,
    /// What it will need.
    pub request: AppRequest,
}

impl Kept {
    fn updated(&self) -> Binding {
        Binding { digest: self.digest.clone(), request: self.request.clone(), ..self.old.clone() }
    }

    /// What its claim is to hold from now on; `during`: the larger of old and new, and the surge of the change itself.
    fn resize(&self, request: &AppRequest, during: bool) -> LedgerChange {
        LedgerChange::Resize {
            claim: self.old.id,
            request: Arc::new(request.clone()),
            // Where only the terms are new, no pod is replaced.
            surge: during && self.digest != self.old.digest,
        }
    }
}

impl Order {
    /// What has to fit before any object changes.
    pub fn raise(&self) -> Vec<LedgerChange> {
        self.kept.iter().map(|kept| kept.resize(&kept.request, true)).collect()
    }
}

/// What its steps know together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// How far the search for room is, for apps that are new.
    #[serde(default)]
    pub search: Search,
    #[serde(default)]
    progress: Progress,
    /// Of putting the old bundles back.
    #[serde(default)]
    back: Progress,
    #[serde(default)]
    removal: Removal,
    /// Bindings that were left behind, for people.
    #[serde(default)]
    pub leftovers: Vec<String>,
}

/// The workflow.
pub struct Update;

impl Seeks for Update {
    const DECIDE: &'static str = "decide_added";
    fn dig(order: &Order) -> &DigRef {
        &order.dig
    }
    fn apps(order: &Order) -> &[Delivery] {
        &order.added
    }
    fn chosen(_: &Order) -> Option<Uuid> {
        None
    }
    fn search(state: &mut State) -> &mut Search {
        &mut state.search
    }
    fn round(search: Search) -> State {
        State { search, ..State::default() }
    }
}

impl Workflow for Update {
    const KIND: &'static str = "update";
    const VERSION: i32 = 2;
    type World = Environment;
    type Input = Order;
    type State = State;

    fn subject(order: &Order) -> String {
        super::subject(&order.dig)
    }

    fn steps() -> Steps<Self> {
        Steps::new()
            // The larger of old and new, plus surge, where each app stands: room for both at once, before any object changes.
            .step(Step::remote("raise", raise).at(PLACEMENT).undo(lower_back))
            // Apps that are new are a newcomer's: decided, planned for and given room as in `instantiate`.
            .step(Step::remote("decide_added", room::decide).at(PLACEMENT).undo(room::give_back_decision))
            .step(
                Step::remote("plan_added", room::plan)
                    .at(MIGRATION)
                    .when(|order: &Order, state: &State| state.search.is_open(&order.added)),
            )
            .step(Step::remote("overflow_added", room::overflow).at(PLACEMENT).undo(room::give_back_overflow))
            // Once others have moved for us they stay where they are, whatever becomes of us.
            .step(Step::children("make_room", room::start_moving, room::moved).undo(room::give_back_room))
            .step(Step::local("bind", bind).undo(take_away).undo_at(SYNCHRONIZER))
            // The new bundles. What goes wrong is put back by applying the old ones; what was pruned comes with them.
            .step(Step::wait("deliver", deliver).at(SYNCHRONIZER).undo(put_back))
            .pivot(Step::local("become_current", become_current))
            // The surge is over, and what the new revision needs less is free for others.
            .step(Step::remote("lower", lower).at(PLACEMENT))
            .step(Step::wait("remove_dropped", remove_dropped).at(SYNCHRONIZER))
            .finally(Step::local("drop_hold", drop_hold))
    }
}

async fn resize(ctx: &Ctx<Update>, name: &str, changes: Vec<LedgerChange>) -> Result<Result<(), PeerError>, StepError> {
    if changes.is_empty() {
        return Ok(Ok(()));
    }
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let transaction = LedgerTransaction { operation: ctx.id, fence, changes };
    Ok(ctx.world.services.placement.transact(ctx.derived_id(name), &transaction).await.map(drop))
}

/// As [`resize`], of claims that need no more than they have: it is tried until it is so.
async fn shrink(ctx: &Ctx<Update>, name: &str, changes: Vec<LedgerChange>) -> StepResult {
    match resize(ctx, name, changes).await? {
        Ok(()) => Ok(Outcome::next()),
        Err(error) => Err(StepError::retry(format!("the claims are not as they should be yet: {error}: {}", reasons(&error).join("; ")))),
    }
}

async fn raise(ctx: &mut Ctx<Update>) -> StepResult {
    ctx.progress("making room for old and new at once");
    match resize(ctx, "raise", ctx.input.raise()).await? {
        Ok(()) => Ok(Outcome::next()),
        Err(error) if error.code() == Some("ledger_conflict") => {
            Err(StepError::fail("no_room", "the new revision does not fit where the application runs; nothing was changed")
                .reasons(reasons(&error)))
        }
        Err(error) => unheard(ctx, error),
    }
}

async fn lower_back(ctx: &mut Ctx<Update>) -> StepResult {
    shrink(ctx, "lower_back", ctx.input.kept.iter().map(|kept| kept.resize(&kept.old.request, false)).collect()).await
}

async fn bind(ctx: &mut Ctx<Update>, tx: &mut PgConnection) -> StepResult {
    for binding in targets(ctx)? {
        binding::put(&mut *tx, &binding).await?;
    }
    Ok(Outcome::next())
}

async fn take_away(ctx: &mut Ctx<Update>) -> StepResult {
    let mut tx = ctx.world.transaction(ctx.id, ctx.fence).await?;
    let bindings = remove::retire_targets(&mut tx, ctx.id).await?;
    tx.commit().await?;
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let world = ctx.world.clone();
    let removed = ctx.state.removal.remove(&world, fence, &bindings, world.deadlines.gone).await?;
    ctx.state.leftovers = removed.leftovers();
    Ok(removed.park().unwrap_or_else(Outcome::next))
}

async fn deliver(ctx: &mut Ctx<Update>) -> StepResult {
    let mut bindings: Vec<_> = ctx.input.kept.iter().map(Kept::updated).collect();
    bindings.extend(targets(ctx)?);
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let (world, after) = (ctx.world.clone(), ctx.input.after.clone());
    match ctx.state.progress.bring(&world, fence, &bindings, &after, world.deadlines.without_haste()).await? {
        Brought::All => Ok(Outcome::next()),
        Brought::Waiting { keys, until, note } => {
            ctx.progress(note);
            Ok(Outcome::park(keys).until(until))
        }
        Brought::Failed { code, reason, .. } => Err(StepError::fail(&code, format!("{reason}; the old revision is applied again"))),
        Brought::Unschedulable { reason, .. } => Err(StepError::fail("not_ready", format!("{reason}; the old revision is applied again"))),
    }
}

/// The old bundles again; waited for as long as a start may take, for a cluster out of reach not at all.
async fn put_back(ctx: &mut Ctx<Update>) -> StepResult {
    ctx.progress("applying the old revision again");
    let bindings: Vec<_> = ctx.input.kept.iter().map(|kept| kept.old.clone()).collect();
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let world = ctx.world.clone();
    match ctx.state.back.bring(&world, fence, &bindings, &BTreeMap::new(), world.deadlines.without_haste()).await? {
        Brought::Waiting { keys, until, .. } => Ok(Outcome::park(keys).until(until)),
        // The old revision is what is desired; the synchronizer goes on trying.
        Brought::All | Brought::Failed { .. } | Brought::Unschedulable { .. } => Ok(Outcome::next()),
    }
}

async fn become_current(ctx: &mut Ctx<Update>, tx: &mut PgConnection) -> StepResult {
    for kept in &ctx.input.kept {
        binding::set_content(&mut *tx, kept.old.id, &kept.digest, &kept.request, ctx.id).await?;
    }
    let new: Vec<Uuid> = ctx.state.search.placed.iter().map(|placed| placed.binding).collect();
    binding::set_role(&mut *tx, &new, Role::Current, ctx.id).await?;
    binding::set_role(&mut *tx, &ctx.input.dropped, Role::Retiring, ctx.id).await?;
    deployment::approve_apps(&mut *tx, ctx.input.dig.id, &ctx.input.approved).await?;
    deployment::record(&mut *tx, ctx.input.dig.id, "Updated", ctx.input.from_revision, Some(ctx.id)).await?;
    deployment::reach(tx, ctx.input.dig.id, Lifecycle::Instantiated, ctx.input.revision, Some(ctx.id)).await?;
    Ok(Outcome::next())
}

async fn lower(ctx: &mut Ctx<Update>) -> StepResult {
    shrink(ctx, "lower", ctx.input.kept.iter().map(|kept| kept.resize(&kept.request, false)).collect()).await
}

async fn remove_dropped(ctx: &mut Ctx<Update>) -> StepResult {
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let world = ctx.world.clone();
    let rows = binding::find(&mut *world.store.pool().acquire().await?, &ctx.input.dropped).await?;
    let removed = ctx.state.removal.remove(&world, fence, &rows, world.deadlines.gone).await?;
    ctx.state.leftovers = removed.leftovers();
    if let Some(park) = removed.park() {
        return Ok(park);
    }
    ctx.progress("updated");
    Ok(Outcome::next())
}

async fn drop_hold(ctx: &mut Ctx<Update>, tx: &mut PgConnection) -> StepResult {
    hold::drop_all(tx, ctx.id).await?;
    Ok(Outcome::next())
}
