//! Where apps suffer, as the active policies of projects say: what agents report comes with the fleet, the rules are in the policies.
//!
//! Only says where; orchestrator asks for it, has a plan made and carries it out. In memory only: after a restart the times begin anew.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use drover_api::plans::{Relief, ReliefList, SufferingApp};
use drover_scheduling::{Capacity, ClaimState, Fleet, ReliefLook, ReliefReading, ReliefWatch};

use super::{App, PlanError};
use crate::resources::policy::{POLICY, PolicySpec};
use crate::store::side;

/// Where apps suffer, and since when.
pub struct Reliefs(Mutex<Looked>);

struct Looked {
    begun: Instant,
    watch: ReliefWatch,
    found: ReliefList,
}

impl Default for Reliefs {
    fn default() -> Self {
        Self(Mutex::new(Looked { begun: Instant::now(), watch: ReliefWatch::default(), found: ReliefList::default() }))
    }
}

impl Reliefs {
    /// Where apps suffer, as of the last look.
    pub fn found(&self) -> ReliefList {
        self.lock().found.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Looked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// Looks at what is reported now.
    ///
    /// # Errors
    /// The store fails. What was due before is not due any more.
    pub async fn look_for_reliefs(&self) -> Result<(), PlanError> {
        let found = self.rules().await;
        let rules = match &found {
            Ok(rules) if !rules.is_empty() => rules.as_slice(),
            Ok(_) | Err(_) => &[],
        };
        let readings = match rules {
            [] => Vec::new(),
            _ => self.fleet.snapshot(None).await.map(|known| readings(&known.fleet)).unwrap_or_default(),
        };
        let all: Vec<ReliefReading> = readings.iter().map(|(_, reading)| reading.clone()).collect();
        let mut looked = self.reliefs.lock();
        let now = looked.begun.elapsed().as_secs_f64();
        looked.watch.retain(|project| rules.iter().any(|(of, _, _)| of == project));
        let mut list = ReliefList::default();
        for (project, policy, spec) in rules {
            let Some(planned) = &spec.planned_moves else { continue };
            let own: Vec<ReliefReading> = readings.iter().filter(|(of, _)| of == project).map(|(_, reading)| reading.clone()).collect();
            let ReliefLook { due, suffering } = looked.watch.look(now, project, &planned.when, &own, &all);
            list.suffering.extend(suffering.into_iter().map(|one| SufferingApp {
                project: project.clone(),
                policy: policy.clone(),
                claim: one.claim,
                member: one.member,
                reason: one.reason,
                seconds: one.seconds,
                for_seconds: one.for_seconds,
            }));
            list.items.extend(due.into_iter().map(|due| Relief {
                project: project.clone(),
                policy: policy.clone(),
                member: due.member,
                claims: due.claims,
                avoid: due.avoid,
                reason: due.reason,
                rest_seconds: planned.rest_seconds,
            }));
        }
        looked.found = list;
        found.map(drop)
    }

    /// The active policies that have reasons for planned moves, with their projects.
    async fn rules(&self) -> Result<Vec<(String, String, PolicySpec)>, PlanError> {
        let mut db = self.store.acquire().await?;
        let mut rules = Vec::new();
        for (project, policy) in side::active_with_planned_moves(&mut db).await? {
            let found = drover_resources::by_id::<PolicySpec>(&mut db, &POLICY, policy).await?;
            if let Some(policy) = found.filter(|policy| policy.spec.planned_moves.is_some()) {
                rules.push((project, policy.name, policy.spec));
            }
        }
        Ok(rules)
    }
}

/// What is reported of every app that has room, with its project.
fn readings(fleet: &Fleet) -> Vec<(String, ReliefReading)> {
    let held = fleet.claims.values().filter(|claim| claim.state == ClaimState::Held);
    let reading = held.map(|claim| {
        // What was reported by a cluster that does not answer any more is not known now.
        let capacity = fleet.capacity.get(&claim.member).filter(|capacity| capacity.age_ms <= Capacity::FRESH_MS);
        let observed = capacity.and_then(|capacity| capacity.observed.get(&claim.id));
        let reading = ReliefReading {
            claim: claim.id,
            member: claim.member.clone(),
            memory_pressure: observed.and_then(|observed| observed.memory_pressure).map(|percent| percent as f64),
            unmet_pods: observed.and_then(|observed| observed.unmet_pods).map(|pods| pods as f64),
        };
        (claim.dig.project.clone(), reading)
    });
    reading.collect()
}
