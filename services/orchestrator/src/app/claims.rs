//! Claims follow what runs: where another field manager scales a workload, the claim of its copy grows and shrinks with the number of
//! replicas. So a move claims, at its destination, room for as many pods as it starts there.
//!
//! A claim keeps room for one pod of a workload that is scaled to zero: the first request finds it. Growth that does not fit is not
//! claimed; the list of apps says so, it is tried again at every pass, and room is made for it ([`super::growth`]).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use drover_api::bindings::Phase;
use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_api::scheduling::{AppRequest, Demand};
use uuid::Uuid;

use super::{App, Error};
use crate::demand::following;
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

/// How often all copies are compared with what was approved for them, which costs more the more copies there are. In between only those are
/// looked at that are reported as scaled, and those whose claims were resized when they were looked at last. So a claim that a move, an update
/// or another process has resized, of a copy that is not reported as scaled, is corrected at most this much later.
const LOOK_AT_ALL: Duration = Duration::from_secs(60);

/// The copies whose claims are known to be resized.
#[derive(Default)]
pub struct Resized(Mutex<KnownResized>);

#[derive(Default)]
struct KnownResized {
    copies: HashSet<Uuid>,
    /// When all copies were looked at.
    all_at: Option<Instant>,
}

impl Resized {
    /// Those that are known, and whether it is time to look at all.
    fn known(&self) -> (HashSet<Uuid>, bool) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (known.copies.clone(), known.all_at.is_none_or(|at| at.elapsed() >= LOOK_AT_ALL))
    }

    fn replace(&self, copies: HashSet<Uuid>, all: bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.copies = copies;
        if all {
            known.all_at = Some(Instant::now());
        }
    }
}

impl App {
    /// Resizes the claims of copies whose workloads were scaled. Groups that an operation is changing are left to it.
    ///
    /// # Errors
    /// The database cannot be used. A claim that cannot be resized does not hold up the others.
    pub async fn follow_scale(&self) -> Result<(), Error> {
        let (mut ids, all) = self.resized.known();
        ids.extend(self.environment.statuses.scaled());
        let mut db = self.store.acquire().await?;
        if all {
            ids.extend(binding::resized(&mut db).await?);
        }
        let rows = binding::serving(&mut db, &ids.into_iter().collect::<Vec<_>>()).await?;
        let held: HashMap<Uuid, Uuid> = hold::all(&mut db).await?.into_iter().collect();
        drop(db);
        let is_resized = |(binding, approved): &&(Binding, Demand)| binding.request.demand != *approved;
        let mut resized: HashSet<Uuid> = rows.iter().filter(is_resized).map(|(binding, _)| binding.id).collect();
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
                Ok(None) => drop(resized.insert(binding.id)),
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
        self.resized.replace(resized, all);
        self.growth.retain(|binding| unclaimed.contains_key(&binding));
        self.unclaimed.replace(unclaimed);
        Ok(())
    }

    /// Resizes the claim of a copy. Returns why it does not fit, if it does not.
    async fn resize(&self, binding: &Binding, demand: &Demand) -> Result<Option<String>, Error> {
        let request = AppRequest { demand: demand.clone(), ..binding.request.clone() };
        let fence = next_fence(&mut *self.store.acquire().await?).await?;
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
        let mut db = self.store.acquire().await?;
        binding::set_request(&mut db, binding, &request).await?;
        Ok(None)
    }
}

fn pods(demand: &Demand) -> String {
    let count: u64 = demand.groups.iter().map(|group| u64::from(group.replicas)).sum();
    format!("room for {count} pods")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_copies_are_looked_at_first_and_known_ones_in_between() {
        let (resized, copy) = (Resized::default(), Uuid::from_u128(1));
        assert_eq!(resized.known(), (HashSet::new(), true));
        resized.replace(HashSet::from([copy]), true);
        assert_eq!(resized.known(), (HashSet::from([copy]), false));
        resized.replace(HashSet::new(), false);
        assert_eq!(resized.known(), (HashSet::new(), false));
        resized.0.lock().unwrap().all_at = Instant::now().checked_sub(LOOK_AT_ALL);
        assert!(resized.known().1);
    }
}
