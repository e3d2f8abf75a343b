//! Updating a deployment intent group in place: room for the larger of old and new (others are moved away for it, [`surge`]), new objects,
//! and when these are ready, the new revision becomes current. An app changes its cluster only if its placement intent was edited and no longer allows it
//! where it runs; then the new copy starts first. A new copy that its member refuses for what it has is placed elsewhere, as in `instantiate`;
//! a copy that stays is not. Before the pivot, undo applies the old bundles again and restores the claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_api::scheduling::{AppRequest, DigRef};
use drover_workflow::{Ctx, Outcome, Step, StepError, StepResult, Steps, Workflow};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::apply::{Applied, ApplyProgress};
use super::remove::{self, Removal, RemovesCopies};
use super::room::{self, REPLANS, Search, SearchState, SeeksRoom, targets};
use super::surge::{self, Surge};
use super::{After, Delivery, MIGRATION, PLACEMENT, SYNCHRONIZER, reasons, wait_for_capacity};
use crate::environment::{Environment, Lease};
use crate::peers::PeerError;
use crate::store::binding::{self, Binding, Role};
use crate::store::deployment::{self, ApprovedApp, DeploymentState};
use crate::store::hold;

/// The step that claims the room for old and new pods.
pub(super) const RAISE: &str = "raise";

/// The input of an update.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub dig: DigRef,
    pub from_revision: i64,
    /// Revision that the group gets.
    pub revision: i64,
    /// Bindings that stay on their members.
    pub kept: Vec<Kept>,
    /// Apps that are new in the group.
    pub added: Vec<Delivery>,
    /// Of these, by app: those that run and with which the call graph keeps it together.
    #[serde(default)]
    pub together: BTreeMap<String, Vec<String>>,
    /// Bindings of apps that the group no longer has.
    pub dropped: Vec<Uuid>,
    /// The apps of the new revision, as a later instantiate would use them.
    pub approved: Vec<ApprovedApp>,
    /// Dependencies, by app.
    #[serde(default)]
    pub after: BTreeMap<String, Vec<After>>,
    /// What has changed since the dry run whose basis was sent.
    #[serde(default)]
    pub changed: Vec<String>,
    /// Whether this goes back to an earlier revision.
    #[serde(default)]
    pub rollback: bool,
}

/// A binding that is updated on its member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    pub old: Binding,
    /// Digest of its new bundle.
    pub digest: String,
    /// What it needs from now on.
    pub request: AppRequest,
}

impl Kept {
    fn updated(&self) -> Binding {
        Binding { digest: self.digest.clone(), request: self.request.clone(), ..self.old.clone() }
    }

    /// Whether pods are replaced; not if only the terms have changed.
    pub(super) fn replaces_pods(&self) -> bool {
        self.digest != self.old.digest
    }

    /// Resizes the claim to `request`. `during` the update: to the larger of old and new, with the surge of the rollout.
    fn resize(&self, request: &AppRequest, during: bool) -> LedgerChange {
        LedgerChange::Resize { claim: self.old.id, request: Arc::new(request.clone()), surge: during && self.replaces_pods() }
    }
}

impl Order {
    /// The claims that must fit before any object changes.
    pub fn raise(&self) -> Vec<LedgerChange> {
        self.kept.iter().map(|kept| kept.resize(&kept.request, true)).collect()
    }
}

/// The state of an update.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UpdateState {
    /// Room where the apps run, if there is none.
    #[serde(default)]
    pub surge: Surge,
    /// The search for room for the apps that are new.
    #[serde(default)]
    pub search: SearchState,
    #[serde(default)]
    progress: ApplyProgress,
    /// Why the apps that are new must be placed again.
    #[serde(default)]
    lost: Option<String>,
    /// Of applying the old bundles again.
    #[serde(default)]
    back: ApplyProgress,
    #[serde(default)]
    removal: Removal,
}

/// The workflow that updates a group in place.
pub struct Update;

impl SeeksRoom for Update {
    const DECIDE: &'static str = "decide_added";
    fn search<'a>(order: &'a Order, state: &'a mut UpdateState) -> Search<'a> {
        Search { dig: &order.dig, apps: &order.added, chosen: None, state: &mut state.search }
    }
    fn next_round(before: UpdateState) -> UpdateState {
        // The copies that stay have their new bundles already.
        UpdateState { removal: before.removal.for_next_round(), progress: before.progress, ..UpdateState::default() }
    }
}

impl RemovesCopies for Update {
    fn removal(state: &mut UpdateState) -> &mut Removal {
        &mut state.removal
    }
}

impl Workflow for Update {
    const KIND: &'static str = "update";
    const VERSION: i32 = 2;
    type Environment = Environment;
    type Input = Order;
    type State = UpdateState;

    fn subject(order: &Order) -> String {
        super::subject(&order.dig)
    }

    fn steps() -> Steps<Self> {
        Steps::new()
            // On each app's member, the larger of old and new plus the surge: room for both at once before any object changes.
            .step(Step::remote(RAISE, raise).at(PLACEMENT).undo(lower_back))
            // Without that room, others are moved away from there if they may be, and `raise` is repeated.
            .step(Step::remote("plan_surge", surge::plan).at(MIGRATION).when(|_, state: &UpdateState| !state.surge.lacks.is_empty()))
            .step(
                Step::children("make_surge_room", surge::make_room, surge::room_made)
                    .when(|_, state: &UpdateState| state.surge.plan.is_some())
                    .undo(surge::release_room)
                    .undo_at(PLACEMENT),
            )
            // Apps that are new get room as in `instantiate`: a decision, else a plan.
            .step(Step::remote("decide_added", room::decide).at(PLACEMENT).undo(room::release_decision))
            .step(
                Step::remote("plan_added", room::plan)
                    .at(MIGRATION)
                    .when(|order: &Order, state: &UpdateState| state.search.is_open(&order.added)),
            )
            .step(
                Step::remote("overflow_added", room::overflow)
                    .at(PLACEMENT)
                    .when(|order: &Order, state: &UpdateState| state.search.is_open(&order.added))
                    .undo(room::release_overflow),
            )
            // Apps that were moved stay where they are even if this workflow is undone.
            .step(
                Step::children("make_room", room::make_room, room::room_made)
                    .when(|_, state: &UpdateState| state.search.plan.is_some())
                    .undo(room::release_room)
                    .undo_at(PLACEMENT),
            )
            .step(Step::local("bind", bind).undo(remove::take_away).undo_at(SYNCHRONIZER))
            // The new bundles. Undo applies the old ones again, which also restores objects that were pruned.
            .step(Step::wait("deliver", deliver).at(SYNCHRONIZER).undo(put_back))
            // A member refused an app that is new, and another one accepts it: remove the new copies and place them again.
            .step(Step::wait("replan_added", replan_added).at(SYNCHRONIZER).when(|_, state: &UpdateState| state.lost.is_some()))
            .pivot(Step::local("become_current", become_current))
            // Releases the surge, and what the new revision needs less than the old one. A newcomer may be promised the room of apps
            // that are dropped while their copies are being removed.
            .step(Step::remote("lower", lower).at(PLACEMENT))
            .step(Step::wait("remove_dropped", remove_dropped).at(SYNCHRONIZER))
            .finally(Step::local("drop_hold", drop_hold))
    }
}

async fn resize(ctx: &Ctx<Update>, name: &str, changes: Vec<LedgerChange>) -> Result<Result<(), PeerError>, StepError> {
    if changes.is_empty() {
        return Ok(Ok(()));
    }
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    let transaction = LedgerTransaction { operation: ctx.id, fence, changes };
    Ok(ctx.environment.services.placement.transact(ctx.derived_id(name), &transaction).await.map(drop))
}

/// As [`resize`], for claims that get smaller. Refusals are retried: they are temporary.
async fn shrink(ctx: &Ctx<Update>, name: &str, changes: Vec<LedgerChange>) -> StepResult {
    match resize(ctx, name, changes).await? {
        Ok(()) => Ok(Outcome::next()),
        Err(error) => Err(StepError::retry(format!("the claims are not resized yet: {error}: {}", reasons(&error).join("; ")))),
    }
}

async fn raise(ctx: &mut Ctx<Update>) -> StepResult {
    ctx.progress("making room for old and new at once");
    // In one transaction, so that nobody takes the room in between.
    let made: Vec<_> = ctx.state.surge.made.iter().map(|claim| LedgerChange::Release { claim: *claim }).collect();
    match resize(ctx, "raise", made.iter().cloned().chain(ctx.input.raise()).collect()).await? {
        Ok(()) => {
            ctx.state.surge = Surge::default();
            Ok(Outcome::next())
        }
        Err(error) if error.code() == Some("ledger_conflict") => {
            shrink(ctx, "raise/release", made).await?;
            surge::lacks(ctx, reasons(&error))
        }
        Err(error) => wait_for_capacity(ctx, error),
    }
}

async fn lower_back(ctx: &mut Ctx<Update>) -> StepResult {
    shrink(ctx, "lower_back", ctx.input.kept.iter().map(|kept| kept.resize(&kept.old.request, false)).collect()).await
}

async fn bind(ctx: &mut Ctx<Update>, tx: &mut PgConnection) -> StepResult {
    binding::put_all(tx, &targets(ctx)?).await?;
    Ok(Outcome::next())
}

async fn deliver(ctx: &mut Ctx<Update>) -> StepResult {
    let mut bindings: Vec<_> = ctx.input.kept.iter().map(Kept::updated).collect();
    let added = targets(ctx)?;
    bindings.extend(added.iter().cloned());
    let (environment, after) = (ctx.environment.clone(), ctx.input.after.clone());
    ctx.state.progress.rollback = ctx.input.rollback;
    let lease = Lease::of(ctx);
    match ctx.state.progress.advance(&environment, lease, &bindings, &after, environment.deadlines.with_full_ready_timeout()).await? {
        Applied::All => Ok(Outcome::next()),
        Applied::Waiting { keys, until, note } => {
            ctx.progress(note);
            Ok(Outcome::park(keys).until(until))
        }
        Applied::Failed { binding, code, reason, elsewhere, lasting } => {
            let target = added.iter().find(|target| target.id == binding).filter(|_| elsewhere && ctx.round <= REPLANS);
            let refusals = match target {
                Some(target) => {
                    let others = ctx.input.together.get(&target.app).cloned().unwrap_or_default();
                    room::accepted_elsewhere(ctx, target, &reason, lasting.as_deref(), &others).await?
                }
                None => Err(Vec::new()),
            };
            let Err(refusals) = refusals else {
                ctx.state.lost = Some(reason);
                return Ok(Outcome::next());
            };
            Err(StepError::fail(&code, format!("{reason}; the old revision is applied again")).reasons(refusals))
        }
        Applied::Unschedulable { reason, .. } => Err(StepError::fail("not_ready", format!("{reason}; the old revision is applied again"))),
    }
}

async fn replan_added(ctx: &mut Ctx<Update>) -> StepResult {
    let Some(reason) = ctx.state.lost.clone() else { return Ok(Outcome::next()) };
    ctx.progress(format!("looking for another place: {reason}"));
    if let Some(park) = remove::remove_targets(ctx).await? {
        return Ok(park);
    }
    let added = targets(ctx)?;
    ctx.state.progress.forget(&added);
    Ok(Outcome::Repeat(Update::DECIDE))
}

/// Undo: applies the old bundles again and waits until they are ready or have failed.
async fn put_back(ctx: &mut Ctx<Update>) -> StepResult {
    ctx.progress("applying the old revision again");
    let bindings: Vec<_> = ctx.input.kept.iter().map(|kept| kept.old.clone()).collect();
    let environment = ctx.environment.clone();
    let lease = Lease::of(ctx);
    match ctx.state.back.advance(&environment, lease, &bindings, &BTreeMap::new(), environment.deadlines.with_full_ready_timeout()).await? {
        Applied::Waiting { keys, until, .. } => Ok(Outcome::park(keys).until(until)),
        // The old revision is desired now; resource-synchronizer keeps applying it.
        Applied::All | Applied::Failed { .. } | Applied::Unschedulable { .. } => Ok(Outcome::next()),
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
    deployment::keep_controller_answers(&mut *tx, ctx.input.dig.id, ctx.input.revision).await?;
    deployment::record(&mut *tx, ctx.input.dig.id, "Updated", ctx.input.from_revision, Some(ctx.id)).await?;
    deployment::reach(tx, ctx.input.dig.id, DeploymentState::Instantiated, ctx.input.revision, Some(ctx.id)).await?;
    Ok(Outcome::next())
}

async fn lower(ctx: &mut Ctx<Update>) -> StepResult {
    let dropped = binding::find(&mut *ctx.environment.store.acquire().await?, &ctx.input.dropped).await?;
    remove::mark_leaving(ctx, &dropped).await?;
    shrink(ctx, "lower", ctx.input.kept.iter().map(|kept| kept.resize(&kept.request, false)).collect()).await
}

async fn remove_dropped(ctx: &mut Ctx<Update>) -> StepResult {
    let rows = binding::find(&mut *ctx.environment.store.acquire().await?, &ctx.input.dropped).await?;
    let removed = remove::remove(ctx, &rows).await?;
    if let Some(park) = removed.park() {
        return Ok(park);
    }
    remove::mark_left(ctx, &removed.left).await?;
    ctx.progress(ctx.state.search.told("updated"));
    Ok(Outcome::next())
}

async fn drop_hold(ctx: &mut Ctx<Update>, tx: &mut PgConnection) -> StepResult {
    hold::drop_all(tx, ctx.id).await?;
    Ok(Outcome::next())
}
