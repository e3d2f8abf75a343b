//! Claims follow what runs: where another field manager scales a workload, the claim of its copy grows and shrinks with the number of
//! replicas. So a move claims, at its destination, room for as many pods as it starts there.
//!
//! A claim keeps room for one pod of a workload that is scaled to zero: the first request finds it. Growth that does not fit is not
//! claimed; the list of apps says so, it is tried again at every pass, and room is made for it ([`super::growth`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

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

impl App {
    /// Resizes the claims of copies whose workloads were scaled. Groups that an operation is changing are left to it.
    ///
    /// # Errors
    /// The database cannot be used. A claim that cannot be resized does not hold up the others.
    pub async fn follow_scale(&self) -> Result<(), Error> {
        let mut db = self.store.acquire().await?;
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
