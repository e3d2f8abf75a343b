//! Taking bindings away: absent for the synchronizer, and when it says Gone, their room is given back. What is out of reach
//! is left to the task `retire`.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_api::bindings::{DesiredState, Phase};
use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_store::{StoreResult, Timestamp};
use drover_workflow::{Outcome, StepError};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{judge, now};
use crate::environment::{Environment, binding_key};
use crate::peers::PeerError;
use crate::store::binding::{self, Binding, Role};
use crate::store::next_fence;

/// How far a removal is; part of a workflow's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Removal {
    /// Bindings that were told to go, with the fence of that word.
    sent: std::collections::BTreeMap<Uuid, i64>,
    /// When the first was.
    since: Option<Timestamp>,
}

/// How far it is.
#[derive(Clone, Debug, Default)]
pub struct Removed {
    /// Gone, room given back.
    pub gone: BTreeSet<Uuid>,
    /// Out of reach, or slow beyond patience: left to `retire`.
    pub left: Vec<Binding>,
    /// Still being waited for.
    pub waiting: Vec<Uuid>,
    /// When patience ends.
    pub until: Option<Timestamp>,
}

impl Removed {
    /// Parks on what is waited for; none: nothing is.
    pub fn park(&self) -> Option<Outcome> {
        let until = self.until.filter(|_| !self.waiting.is_empty())?;
        Some(Outcome::park(self.waiting.iter().map(|id| binding_key(*id))).until(until))
    }

    /// For people.
    pub fn leftovers(&self) -> Vec<String> {
        self.left.iter().map(leftover).collect()
    }
}

/// A binding that was left, for people.
pub fn leftover(binding: &Binding) -> String {
    format!("{}/{} on {}", binding.dig.name, binding.app, binding.member)
}

impl Removal {
    /// Tells `bindings` (rows in role retiring) to go, settles those that are gone, waits at most `patience` for the others.
    pub async fn remove(
        &mut self,
        world: &Environment,
        fence: i64,
        bindings: &[Binding],
        patience: Duration,
    ) -> Result<Removed, StepError> {
        for binding in bindings.iter().filter(|binding| binding.role != Role::Gone) {
            if let std::collections::btree_map::Entry::Vacant(unsent) = self.sent.entry(binding.id) {
                world.services.synchronizer.put_binding(&binding.desired(DesiredState::Absent, fence)).await?;
                unsent.insert(fence);
            }
        }
        let until = judge::after(*self.since.get_or_insert_with(now), patience);
        let mut removed = Removed { until: Some(until), ..Removed::default() };
        for binding in bindings {
            if binding.role == Role::Gone {
                removed.gone.insert(binding.id);
                continue;
            }
            let status = world.statuses.get(binding.id);
            let told = self.sent.get(&binding.id).copied().unwrap_or(i64::MAX);
            match status.as_ref().map(|status| status.phase) {
                Some(Phase::Gone) => {
                    settle(world, binding).await?;
                    removed.gone.insert(binding.id);
                }
                Some(Phase::Unreachable) if status.is_some_and(|status| status.fence >= told) => removed.left.push(binding.clone()),
                _ if now() >= until => removed.left.push(binding.clone()),
                _ => removed.waiting.push(binding.id),
            }
        }
        Ok(removed)
    }
}

/// A binding that is gone gives its room back. Also called by the task `retire`, also twice.
pub async fn settle(world: &Environment, binding: &Binding) -> Result<(), SettleError> {
    let mut tx = world.store.begin().await?;
    let fence = next_fence(&mut tx).await?;
    tx.commit().await.map_err(drover_store::StoreError::from)?;
    let release = LedgerTransaction { operation: binding.operation, fence, changes: vec![LedgerChange::Release { claim: binding.id }] };
    // One id for ever: this claim is released once, whoever does it.
    world.services.placement.transact(Uuid::new_v5(&binding.id, b"release"), &release).await?;
    let mut tx = world.store.begin().await?;
    binding::set_role(&mut tx, &[binding.id], Role::Gone, binding.operation).await?;
    tx.commit().await.map_err(drover_store::StoreError::from)?;
    Ok(())
}

/// Why a binding's room was not given back yet.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// Own tables.
    #[error(transparent)]
    Store(#[from] drover_store::StoreError),
    /// Placement.
    #[error(transparent)]
    Peer(#[from] PeerError),
}

/// A copy that is given up becomes retiring. False: it is gone already, or its row was never written.
pub async fn retire(tx: &mut PgConnection, binding: Uuid) -> StoreResult<bool> {
    let retired = sqlx::query("update binding set role = 'retiring', changed_at = now() where id = $1 and role in ('target', 'retiring')")
        .bind(binding)
        .execute(tx)
        .await?;
    Ok(retired.rows_affected() > 0)
}

/// The targets of an operation become retiring; returns all of its bindings that shall go or are gone.
pub async fn retire_targets(tx: &mut PgConnection, operation: Uuid) -> StoreResult<Vec<Binding>> {
    sqlx::query("update binding set role = 'retiring', changed_at = now() where operation = $1 and role = 'target'")
        .bind(operation)
        .execute(&mut *tx)
        .await?;
    let all = binding::of_operation(tx, operation).await?;
    Ok(all.into_iter().filter(|binding| matches!(binding.role, Role::Retiring | Role::Gone)).collect())
}
