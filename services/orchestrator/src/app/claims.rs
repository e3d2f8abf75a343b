//! Claims follow what runs: where another field manager scales a workload, the claim of its copy grows and shrinks with the number of
//! replicas. So a move claims, at its destination, room for as many pods as it starts there.
//!
//! A claim keeps room for one pod of a workload that is scaled to zero: the first request finds it. Growth that does not fit is not
//! claimed; the list of apps says so, it is tried again at every pass, and room is made for it ([`super::growth`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use drover_api::bindings::{Phase, ScaledWorkload};
use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_api::scheduling::{AppRequest, Demand, PodGroup};
use uuid::Uuid;

use super::{App, Error};
use crate::store::binding::{self, Binding};
use crate::store::{hold, next_fence};
use crate::workflows::reasons;

/// Why the claim of a copy is smaller than what runs, by binding. In memory only: every pass finds it anew.
#[derive(Default)]
pub struct Unclaimed(Mutex<HashMap<Uuid, String>>);

impl Unclaimed {
    /// Why this copy's pods are not all claimed.
    pub fn of(&self, binding: Uuid) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&binding).cloned()
    }

    fn replace(&self, all: HashMap<Uuid, String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

impl App {
    /// Resizes the claims of copies whose workloads were scaled. Groups that an operation is changing are left to it.
    ///
    /// # Errors
    /// The database cannot be used. A claim that cannot be resized does not hold up the others.
    pub async fn follow_scale(&self) -> Result<(), Error> {
        let mut db = self.store.pool().acquire().await?;
        let rows = binding::scaled_or_resized(&mut db, &self.environment.statuses.scaled()).await?;
        let held: HashMap<Uuid, Uuid> = hold::all(&mut db).await?.into_iter().collect();
        drop(db);
        let mut unclaimed = HashMap::new();
        for (binding, approved) in rows {
            // What is not known to run is not released.
            let status = self.environment.statuses.get(binding.id);
            let Some(status) = status.filter(|status| matches!(status.phase, Phase::Ready | Phase::Applied)) else { continue };
            let demand = following(&approved, &status.scaled);
            if demand == binding.request.demand {
                continue;
            }
            let said = self.unclaimed.of(binding.id).map(|why| (binding.id, why));
            if held.contains_key(&binding.dig.id) {
                // What was said stays while an operation makes room, for example.
                unclaimed.extend(said);
                continue;
            }
            match self.resize(&binding, &demand).await {
                Ok(None) => {}
                Ok(Some(why)) => {
                    if let Err(error) = self.make_room_for_growth(&binding, &demand).await {
                        tracing::debug!(binding.id = %binding.id, %error, "no room can be made for what has grown, will retry");
                    }
                    unclaimed.insert(binding.id, format!("{} is not all claimed: {why}", pods(&demand)));
                }
                Err(error) => {
                    unclaimed.extend(said);
                    tracing::debug!(binding.id = %binding.id, error = %drover_service::problem::chain(&error), "a claim could not be resized, will retry");
                }
            }
        }
        self.growth.retain(|binding| unclaimed.contains_key(&binding));
        self.unclaimed.replace(unclaimed);
        Ok(())
    }

    /// Resizes the claim of a copy. Returns why it does not fit, if it does not.
    async fn resize(&self, binding: &Binding, demand: &Demand) -> Result<Option<String>, Error> {
        let request = AppRequest { demand: demand.clone(), ..binding.request.clone() };
        let mut tx = self.store.begin().await?;
        let fence = next_fence(&mut tx).await?;
        tx.commit().await?;
        let change = LedgerChange::Resize { claim: binding.id, request: Arc::new(request.clone()), surge: false };
        // The operation that changed the claim last stays the one that answers for it.
        let transaction = LedgerTransaction { operation: binding.operation, fence, changes: vec![change] };
        let id = Uuid::new_v5(&binding.id, format!("scaled/{fence}").as_bytes());
        match self.services.placement.transact(id, &transaction).await {
            Ok(_) => {}
            Err(error) if error.code() == Some("ledger_conflict") => return Ok(Some(reasons(&error).join("; "))),
            Err(error) => return Err(error.into()),
        }
        // An operation that has begun meanwhile writes its own request.
        let mut tx = self.store.begin().await?;
        binding::set_request(&mut tx, binding, &request).await?;
        tx.commit().await?;
        Ok(None)
    }
}

/// The approved demand with as many replicas as run.
pub(super) fn following(approved: &Demand, scaled: &[ScaledWorkload]) -> Demand {
    let replicas = |group: &PodGroup| {
        let found = scaled.iter().find(|workload| workload.workload() == group.workload)?;
        Some(u32::try_from(found.replicas).unwrap_or(0).max(1))
    };
    let mut demand = approved.clone();
    for group in demand.groups.iter_mut().filter(|group| !group.per_node) {
        if let Some(replicas) = replicas(group) {
            // As much more as before, in proportion.
            let surge = u64::from(group.surge) * u64::from(replicas);
            group.surge = u32::try_from(surge.div_ceil(u64::from(group.replicas.max(1)))).unwrap_or(u32::MAX).min(u32::MAX - replicas);
            group.replicas = replicas;
        }
    }
    demand
}

fn pods(demand: &Demand) -> String {
    let count: u64 = demand.groups.iter().map(|group| u64::from(group.replicas)).sum();
    format!("room for {count} pods")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(replicas: u32, surge: u32) -> Demand {
        let group = |workload: &str, per_node| PodGroup { workload: workload.into(), replicas, surge, per_node, ..PodGroup::default() };
        Demand {
            groups: vec![group("Deployment/web", false), group("Deployment/db", false), group("DaemonSet/web", true)],
            ..Demand::default()
        }
    }

    fn scaled(replicas: i32) -> Vec<ScaledWorkload> {
        vec![ScaledWorkload { kind: "Deployment".into(), name: "web".into(), replicas, by: "hpa".into() }]
    }

    #[test]
    fn following_changes_only_what_was_scaled() {
        let found = following(&demand(2, 1), &scaled(7));
        assert_eq!((found.groups[0].replicas, found.groups[0].surge), (7, 4));
        assert_eq!(found.groups[1..], demand(2, 1).groups[1..]);
        assert_eq!(following(&demand(2, 1), &[]), demand(2, 1));
    }

    #[test]
    fn workload_at_zero_keeps_room_for_one_pod() {
        for replicas in [0, -1, 1] {
            assert_eq!(following(&demand(4, 1), &scaled(replicas)).groups[0].replicas, 1);
        }
        assert_eq!(following(&demand(4, u32::MAX), &scaled(i32::MAX)).groups[0].replicas, i32::MAX as u32);
    }
}
