//! Makes, stores, accepts and discards plans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::digs::DigTerms;
use drover_api::plans::{PlanDocument, PlanOrder, PlanSearch, PlanState, PlanSubject, PlanWish};
use drover_scheduling::{Infeasible, MemberKey, PlanKind, PlanRequest, PlanResult};
use drover_service::Answer;
use uuid::Uuid;

use super::fleet::{FleetSnapshot, MAX_WAIT};
use super::input::PlanInput;
use super::meter::TimeMeter;
use super::{App, PlanError};
use crate::store::{plans, side};

/// Why apps of other projects stay where they are.
const OTHERS: &str = "it belongs to another project, and whoever asked has no role mover";

/// The time limit for a search.
///
/// # Errors
/// It is not between 0.001 and 20 seconds: callers do not wait longer for an answer.
pub fn time_limit(seconds: f64) -> Result<Duration, PlanError> {
    match (0.001..=20.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(PlanError::Invalid(format!("the time limit for a plan must be 0.001 to 20 seconds, not {seconds}"))),
    }
}

impl App {
    /// Makes a plan and stores it, unless it is a dry run. If there is a plan with this id, it is returned.
    ///
    /// # Errors
    /// The fleet is not known well enough, another service or the store fails, or planning panics.
    pub async fn plan(&self, id: Uuid, order: PlanOrder) -> Result<PlanDocument, PlanError> {
        if let Some(known) = plans::get(&self.store, id).await? {
            return Ok(known);
        }
        let (dry_run, made_for) = (order.dry_run, order.operation);
        let (input, result) = self.make_with_known_fleet(order).await?;
        let subject = PlanSubject::from(&input.request.kind);
        let reason = match &input.request.kind {
            PlanKind::Relieve { reason, .. } => Some(reason.clone()).filter(|reason| !reason.is_empty()),
            PlanKind::Newcomer { .. } | PlanKind::Drain { .. } => None,
        };
        let new = plans::NewPlan {
            subject,
            reason,
            made_for,
            policy: input.request.policy.name.clone(),
            made_on: input.head.to_string(),
            input: if dry_run { Vec::new() } else { input.compressed().map_err(PlanError::internal)? },
            result,
        };
        if dry_run {
            return Ok(new.document(id));
        }
        let stored = plans::keep(&self.store, id, new).await?;
        self.open_plans.notify_one();
        Ok(stored)
    }

    /// Makes a plan. If there is none, but the capacity of clusters that could change this is expected soon, as after a restart, waits for
    /// it and tries again.
    async fn make_with_known_fleet(&self, order: PlanOrder) -> Result<(PlanInput, PlanResult), PlanError> {
        let give_up = tokio::time::Instant::now() + MAX_WAIT;
        loop {
            let made = self.make(order.clone()).await?;
            let PlanResult::Infeasible(Infeasible { awaited, .. }) = &made.1 else { return Ok(made) };
            if awaited.is_empty() {
                return Ok(made);
            }
            if !self.fleet.until_heard(awaited, give_up).await {
                let names: Vec<String> = awaited.iter().map(ToString::to_string).collect();
                return match order.patient {
                    true => Err(PlanError::FleetBehind(format!("The capacity of {} is unknown at the moment", names.join(", ")))),
                    false => Ok(made),
                };
            }
        }
    }

    async fn make(&self, order: PlanOrder) -> Result<(PlanInput, PlanResult), PlanError> {
        let FleetSnapshot { mut fleet, head } = self.fleet.snapshot(order.after_seq).await.ok_or_else(|| {
            PlanError::FleetBehind(match order.after_seq {
                Some(seq) => format!("The copy of the ledger has not reached entry {seq} yet"),
                None => "The ledger is not known yet".to_owned(),
            })
        })?;
        for claim in &order.released {
            let released = fleet.claims.remove(claim);
            // What is observed of it would otherwise count as pods of an app that has left.
            if let Some(capacity) = released.and_then(|released| fleet.capacity.get_mut(&released.member)) {
                Arc::make_mut(capacity).observed.remove(claim);
            }
        }
        let project = match &order.kind {
            PlanKind::Newcomer { dig, .. } => Some(dig.project.as_str()),
            PlanKind::Drain { .. } => None,
            PlanKind::Relieve { project, .. } => Some(project.as_str()),
        };
        let policy = self.policy_of(project).await?;
        let mut db = self.store.acquire().await?;
        let movability = side::movability(&mut db).await?;
        drop(db);
        let external = self.prometheus.values(&policy, &fleet, &movability).await;
        let PlanSearch { seconds, fewest_moves } = order.search;
        let limit = seconds.map_or(Ok(self.plan_time), time_limit)?;
        let mut excluded = order.excluded;
        if let Some(movable) = &order.movable_projects {
            let others = fleet.claims.values().filter(|claim| !movable.contains(&claim.dig.project));
            excluded.extend(others.map(|claim| (claim.dig.id, OTHERS.to_owned())));
        }
        let request = PlanRequest { kind: order.kind, movability, policy, excluded, refused: order.refused, external, fewest_moves };
        // The search uses the CPU for some time, so it must not block the runtime.
        let made = tokio::task::spawn_blocking(move || PlanInput::make(fleet, head, request, TimeMeter::new(limit)));
        made.await.map_err(PlanError::internal)
    }

    /// Makes an order from the request of a user.
    ///
    /// # Errors
    /// The group or the cluster does not exist, the group has claims already, the kind is `rebalance`, or another service is unavailable.
    pub async fn order(&self, wish: PlanWish) -> Result<PlanOrder, PlanError> {
        let kind = match wish {
            PlanWish::Newcomer { project, composite_app, composite_app_version, deployment_intent_group } => {
                let asked = &self.orchestrator;
                let terms =
                    asked.dig_lookup(&composite_app, &deployment_intent_group, &project, &composite_app_version).await.answer(asked)?;
                self.not_placed(&terms).await?;
                PlanKind::Newcomer { dig: terms.dig, apps: terms.apps }
            }
            PlanWish::Drain { cluster_provider, cluster } => {
                let member = MemberKey::new(&cluster_provider, &cluster);
                let known =
                    self.fleet.snapshot(None).await.ok_or_else(|| PlanError::FleetBehind("The ledger is not known yet".to_owned()))?;
                if !known.fleet.members.contains_key(&member) {
                    return Err(PlanError::UnknownCluster(member.to_string()));
                }
                PlanKind::Drain { member }
            }
            PlanWish::Rebalance {} => {
                return Err(PlanError::Invalid("Plans of kind rebalance are not supported; the kinds are newcomer and drain".to_owned()));
            }
        };
        Ok(PlanOrder {
            kind,
            excluded: self.busy().await?,
            refused: Vec::new(),
            released: Vec::new(),
            dry_run: false,
            patient: false,
            operation: None,
            after_seq: None,
            search: PlanSearch::default(),
            movable_projects: None,
        })
    }

    /// The groups that operations hold. They are not candidates.
    async fn busy(&self) -> Result<BTreeMap<Uuid, String>, PlanError> {
        let held = self.orchestrator.hold_list().await.answer(&self.orchestrator)?.items;
        Ok(held.into_iter().map(|hold| (hold.dig, format!("operation {} holds it", hold.operation))).collect())
    }

    async fn not_placed(&self, terms: &DigTerms) -> Result<(), PlanError> {
        let known = self.fleet.snapshot(None).await.ok_or_else(|| PlanError::FleetBehind("The ledger is not known yet".to_owned()))?;
        let mut claims = known.fleet.claims.values().filter(|claim| claim.dig.id == terms.dig.id);
        if let Some(claim) = claims.next() {
            return Err(PlanError::WrongState(format!("{} is {} and has room on {} already", terms.dig.name, terms.state, claim.member)));
        }
        Ok(())
    }

    /// Returns a plan.
    ///
    /// # Errors
    /// `NotFound`, or the store fails.
    pub async fn plan_read(&self, id: Uuid) -> Result<PlanDocument, PlanError> {
        plans::get(&self.store, id).await?.ok_or(PlanError::NotFound(id))
    }

    /// Returns the input of a plan.
    ///
    /// # Errors
    /// `NotFound`, the store fails, or the input cannot be read.
    pub async fn plan_input(&self, id: Uuid) -> Result<PlanInput, PlanError> {
        let bytes = plans::input(&self.store, id).await?.ok_or(PlanError::NotFound(id))?;
        PlanInput::from_compressed(&bytes).map_err(PlanError::internal)
    }

    /// Lists plans, the newest first; of those that are older than `after` if it is given.
    ///
    /// # Errors
    /// The store fails.
    pub async fn plan_list(&self, limit: u32, after: Option<Uuid>) -> Result<Vec<PlanDocument>, PlanError> {
        Ok(plans::list(&self.store, i64::from(limit), after).await?)
    }

    /// Accepts a proposed plan for one operation; repeating it for the same operation is allowed. Checks that the owners of all victims
    /// still agree. The operation holds their groups, so their intents cannot change afterwards.
    ///
    /// # Errors
    /// `NotFound`; `NotProposed`; `WorldChanged` if an owner no longer agrees; or the store fails.
    pub async fn plan_accept(&self, id: Uuid, operation: Uuid) -> Result<PlanDocument, PlanError> {
        let plan = self.plan_read(id).await?;
        if plan.state == PlanState::Proposed {
            let against = self.against(&plan).await?;
            if !against.is_empty() {
                return Err(PlanError::WorldChanged(against));
            }
        }
        let accepted = plans::accept(&self.store, id, operation).await?;
        let plan = self.plan_read(id).await?;
        if accepted { Ok(plan) } else { Err(PlanError::NotProposed(plan.state)) }
    }

    /// The victims that may no longer be moved, as text for users.
    async fn against(&self, plan: &PlanDocument) -> Result<Vec<String>, PlanError> {
        let mut db = self.store.acquire().await?;
        let words = side::movability(&mut db).await?;
        drop(db);
        let victims = plan.plan.iter().flat_map(|plan| plan.waves.iter().flatten());
        let may = |dig: Uuid, app: &str| words.iter().any(|word| word.dig == dig && word.app == app && word.migration);
        let against = victims.filter(|victim| !may(victim.dig.id, &victim.app));
        Ok(against.map(|victim| format!("{}/{}: its owner no longer agrees to moves", victim.dig.name, victim.app)).collect())
    }

    /// Discards a plan.
    ///
    /// # Errors
    /// `NotFound`; `NotProposed` if it was accepted; or the store fails.
    pub async fn plan_discard(&self, id: Uuid, dry: bool) -> Result<(), PlanError> {
        if !dry && plans::discard(&self.store, id).await? {
            return Ok(());
        }
        let plan = self.plan_read(id).await?;
        if dry && matches!(plan.state, PlanState::Proposed | PlanState::Infeasible | PlanState::Discarded) {
            return Ok(());
        }
        Err(PlanError::NotProposed(plan.state))
    }
}
