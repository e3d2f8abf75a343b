//! Removing copies: bindings are told to be absent, and when they are gone their room is released. What cannot be reached is left
//! to the task `retire`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_api::bindings::{DesiredBinding, DesiredState, Phase};
use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_store::{StoreError, StoreResult, Timestamp};
use drover_workflow::{Ctx, Outcome, StepError, StepResult, Workflow};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::apply::TOGETHER;
use super::{now, readiness};
use crate::environment::{Environment, binding_key};
use crate::peers::PeerError;
use crate::store::binding::{self, Binding, Role};
use crate::store::next_fence;

/// A workflow that removes copies.
pub trait RemovesCopies: Workflow<Environment = Environment> {
    /// Borrows how far the removal is.
    fn removal(state: &mut Self::State) -> &mut Removal;
}

/// How far a removal is. Part of a workflow's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Removal {
    /// Bindings that were told to be absent, with the fence of the request.
    sent: BTreeMap<Uuid, i64>,
    /// When the first one was told.
    since: Option<Timestamp>,
    /// Copies that were left to task `retire`, for people.
    #[serde(default)]
    leftovers: Vec<String>,
    /// Objects that stay in a member for good because others need them, for people.
    #[serde(default)]
    kept: BTreeSet<String>,
    /// Whether volume claims that StatefulSets made go too.
    #[serde(default)]
    pub delete_volumes: bool,
}

/// How far each binding is after a pass.
#[derive(Clone, Debug, Default)]
pub struct Removed {
    /// Gone, with their room released.
    pub gone: BTreeSet<Uuid>,
    /// On a member that has not answered for a while, or not gone at the deadline: left to task `retire`.
    pub left: Vec<Binding>,
    /// Not gone yet.
    pub waiting: Vec<Uuid>,
    /// When the first of those that are waited for is left, unless its member answers again before: at the latest at the deadline `gone`.
    pub until: Option<Timestamp>,
}

impl Removed {
    /// Parks until the status of a waiting binding changes; `None` if there are none.
    pub fn park(&self) -> Option<Outcome> {
        let until = self.until.filter(|_| !self.waiting.is_empty())?;
        Some(Outcome::park(self.waiting.iter().map(|id| binding_key(*id))).until(until))
    }
}

/// Tells these bindings (rows in role retiring or gone) to be absent, and waits for them until the deadline `gone`.
///
/// # Errors
///
/// Retry if another engine took over, or a service or the database does not answer.
pub async fn remove<W: RemovesCopies>(ctx: &mut Ctx<W>, bindings: &[Binding]) -> Result<Removed, StepError> {
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    let environment = ctx.environment.clone();
    W::removal(&mut ctx.state).advance(&environment, fence, bindings, environment.deadlines.gone).await
}

/// Undo: removes the new copies. Those that cannot be reached are left.
///
/// # Errors
///
/// See [`remove`].
pub async fn take_away<W: RemovesCopies>(ctx: &mut Ctx<W>) -> StepResult {
    ctx.progress("removing the new copies");
    Ok(remove_targets(ctx).await?.unwrap_or_else(Outcome::next))
}

/// Removes all copies that this operation made and that are not current, those of earlier rounds included. `None`: there is nothing
/// to wait for.
///
/// # Errors
///
/// See [`remove`].
pub async fn remove_targets<W: RemovesCopies>(ctx: &mut Ctx<W>) -> Result<Option<Outcome>, StepError> {
    let mut tx = ctx.environment.transaction(ctx.id, ctx.fence).await?;
    let bindings = retire_targets(&mut tx, ctx.id).await?;
    tx.commit().await?;
    Ok(remove(ctx, &bindings).await?.park())
}

impl Removal {
    /// A removal that has not begun. What this one left or kept in members stays in it, because the operation tells it to people.
    pub fn for_next_round(self) -> Self {
        Self { leftovers: self.leftovers, kept: self.kept, ..Self::default() }
    }

    async fn advance(
        &mut self,
        environment: &Environment,
        fence: i64,
        bindings: &[Binding],
        limit: Duration,
    ) -> Result<Removed, StepError> {
        let unsent = |binding: &&Binding| binding.role != Role::Gone && !self.sent.contains_key(&binding.id);
        let absent =
            |binding: &Binding| DesiredBinding { delete_volumes: self.delete_volumes, ..binding.desired(DesiredState::Absent, fence) };
        let absent: Vec<DesiredBinding> = bindings.iter().filter(unsent).map(absent).collect();
        for some in absent.chunks(TOGETHER) {
            environment.services.synchronizer.put_bindings(&some.iter().cloned().collect()).await?;
            self.sent.extend(some.iter().map(|binding| (binding.id, fence)));
        }
        let until = readiness::after(*self.since.get_or_insert_with(now), limit);
        let mut removed = Removed { until: Some(until), ..Removed::default() };
        // A member is away for some seconds when its API server is replaced, or its agent links it again. Only one that stays away is given up.
        let lost = |binding: &Binding| {
            let since = environment.statuses.unreachable_since(binding.id).unwrap_or_else(now);
            until.min(readiness::after(since, environment.deadlines.unreachable))
        };
        for binding in bindings {
            let status = environment.statuses.get(binding.id);
            // Also of a binding whose room task `retire` released first.
            if let Some(status) = status.as_ref().filter(|status| status.phase == Phase::Gone) {
                self.kept.extend(status.kept.iter().map(|why| format!("on {}: {why}", binding.member)));
            }
            if binding.role == Role::Gone {
                removed.gone.insert(binding.id);
                continue;
            }
            let sent = self.sent.get(&binding.id).copied().unwrap_or(i64::MAX);
            match status.as_ref().map(|status| status.phase) {
                Some(Phase::Gone) => {
                    settle(environment, binding).await?;
                    removed.gone.insert(binding.id);
                }
                phase => {
                    let told = status.is_some_and(|status| status.fence >= sent);
                    let ends = if told && phase == Some(Phase::Unreachable) { lost(binding) } else { until };
                    if now() >= ends {
                        removed.left.push(binding.clone());
                    } else {
                        removed.waiting.push(binding.id);
                        removed.until = removed.until.min(Some(ends));
                    }
                }
            }
        }
        self.leftovers = removed.left.iter().map(|left| format!("{}/{} on {}", left.dig.name, left.app, left.member)).collect();
        Ok(removed)
    }
}

/// Tells the ledger that these copies are leaving, so that a newcomer may be promised their room before they are gone. A claim that
/// is gone already, or that another operation changed since, is left as it is.
///
/// # Errors
///
/// Retry if another engine took over, or placement or the database does not answer.
pub async fn mark_leaving<W: Workflow<Environment = Environment>>(ctx: &Ctx<W>, bindings: &[Binding]) -> Result<(), StepError> {
    let leave = |binding: &Binding| LedgerChange::Leave { claim: binding.id, member: binding.member.clone() };
    mark(ctx, "leave", bindings, leave).await
}

/// Undoes [`mark_leaving`] for copies that are left to task `retire`: nobody knows when their room will be free.
///
/// # Errors
///
/// As for [`mark_leaving`].
pub async fn mark_left<W: Workflow<Environment = Environment>>(ctx: &Ctx<W>, bindings: &[Binding]) -> Result<(), StepError> {
    mark(ctx, "stay", bindings, |binding| LedgerChange::Stay { claim: binding.id }).await
}

async fn mark<W: Workflow<Environment = Environment>>(
    ctx: &Ctx<W>,
    name: &str,
    bindings: &[Binding],
    change: impl Fn(&Binding) -> LedgerChange,
) -> Result<(), StepError> {
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    for binding in bindings {
        let transaction = LedgerTransaction { operation: ctx.id, fence, changes: vec![change(binding)] };
        match ctx.environment.services.placement.transact(ctx.derived_id(&format!("{name}/{}", binding.id)), &transaction).await {
            Err(error) if error.code() != Some("ledger_conflict") => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Releases the room of a binding that is gone. Idempotent; also called by task `retire`.
///
/// # Errors
///
/// If the database or placement does not answer, or placement refuses the release.
pub async fn settle(environment: &Environment, binding: &Binding) -> Result<(), SettleError> {
    let fence = next_fence(&mut *environment.store.acquire().await?).await?;
    let release = LedgerTransaction { operation: binding.operation, fence, changes: vec![LedgerChange::Release { claim: binding.id }] };
    // The id depends on the claim only, so the claim is released once however many callers there are.
    environment.services.placement.transact(Uuid::new_v5(&binding.id, b"release"), &release).await?;
    let mut db = environment.store.acquire().await?;
    binding::set_role(&mut db, &[binding.id], Role::Gone, binding.operation).await?;
    Ok(())
}

/// Why the room of a binding was not released.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// The orchestrator's own tables did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Placement or the resource-synchronizer did not answer, or refused.
    #[error(transparent)]
    Peer(#[from] PeerError),
}

/// Makes a target retiring. False if it is gone already or its row was never written.
///
/// # Errors
///
/// If the database does not answer.
pub async fn retire(tx: &mut PgConnection, binding: Uuid) -> StoreResult<bool> {
    let retired = sqlx::query("update binding set role = 'retiring', changed_at = now() where id = $1 and role in ('target', 'retiring')")
        .bind(binding)
        .execute(tx)
        .await?;
    Ok(retired.rows_affected() > 0)
}

/// Makes the targets of an operation retiring. Returns all its bindings that are retiring or gone.
///
/// # Errors
///
/// If the database does not answer.
pub async fn retire_targets(tx: &mut PgConnection, operation: Uuid) -> StoreResult<Vec<Binding>> {
    sqlx::query("update binding set role = 'retiring', changed_at = now() where operation = $1 and role = 'target'")
        .bind(operation)
        .execute(&mut *tx)
        .await?;
    let all = binding::of_operation(tx, operation).await?;
    Ok(all.into_iter().filter(|binding| matches!(binding.role, Role::Retiring | Role::Gone)).collect())
}
