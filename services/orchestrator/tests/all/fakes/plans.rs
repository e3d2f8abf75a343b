//! Migration in memory: returns the plans that the test queued, or makes plans with the planner of production. Without either, the
//! order is infeasible.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use drover_api::plans::{PlanAcceptance, PlanDocument, PlanOrder, PlanState, PlanSubject, Relief, ReliefList, SufferingApp};
use drover_api::scheduling::{Claim, Infeasible, Ledger, MemberKey, Movability, Plan, PlanKind, PlanRequest, PlanResult, Policy, WhyNot};
use drover_orchestrator::peers::{Migration, PeerError};
use uuid::Uuid;

use super::FakeLedger;

type Planner = Box<dyn Fn() -> Plan + Send>;

#[derive(Default)]
pub struct FakePlans {
    next: Mutex<VecDeque<Planner>>,
    stored: Mutex<HashMap<Uuid, PlanDocument>>,
    /// The ledger on which the planner of production makes plans, with all apps whose name begins with `v` movable in the order of
    /// their names.
    planner: Mutex<Option<Arc<FakeLedger>>>,
    /// How many patient orders are refused with `capacity_unknown`.
    pub unheard: Mutex<usize>,
    /// Where apps suffer.
    pub reliefs: Mutex<Vec<Relief>>,
    /// The apps that suffer.
    pub suffering: Mutex<Vec<SufferingApp>>,
    /// Paths of documents below orchestrator's.
    pub below: Mutex<Vec<String>>,
    /// The groups (ends of their paths) whose migration intents have another priority than 10.
    pub priorities: Mutex<BTreeMap<String, u8>>,
}

impl FakePlans {
    /// Queues a plan, which is made when it is asked for.
    pub fn then(&self, plan: impl Fn() -> Plan + Send + 'static) {
        self.next.lock().unwrap().push_back(Box::new(plan));
    }

    /// Makes plans with the planner of production on this ledger.
    pub fn plan_on(&self, ledger: &Arc<FakeLedger>) {
        *self.planner.lock().unwrap() = Some(ledger.clone());
    }

    /// Stores a proposed plan, as if a user had ordered it.
    pub fn propose(&self, kind: PlanSubject, plan: Plan) -> Uuid {
        let document = document(Uuid::now_v7(), kind, Some(plan));
        let id = document.id;
        self.stored.lock().unwrap().insert(id, document);
        id
    }

    pub fn count(&self) -> usize {
        self.stored.lock().unwrap().len()
    }
}

fn document(id: Uuid, kind: PlanSubject, plan: Option<Plan>) -> PlanDocument {
    let infeasible = plan.is_none().then(|| Infeasible {
        members: vec![WhyNot { member: MemberKey::new("onprem", "a"), reason: "no app there may be moved".into() }],
        ..Infeasible::default()
    });
    let state = if plan.is_some() { PlanState::Proposed } else { PlanState::Infeasible };
    PlanDocument {
        id,
        kind,
        state,
        reason: None,
        why: None,
        operation: None,
        plan,
        infeasible,
        policy: String::new(),
        made_on: String::new(),
        created_at: String::new(),
    }
}

fn plan_of_production(mut ledger: Ledger, order: &PlanOrder) -> PlanResult {
    for claim in &order.released {
        ledger.put_claim(*claim, None);
    }
    let mut apps: Vec<_> = ledger.claims().filter(|claim| claim.request.app.starts_with('v')).collect();
    apps.sort_by(|a, b| a.request.app.cmp(&b.request.app));
    let movable = |(place, claim): (usize, &Arc<Claim>)| Movability {
        dig: claim.dig.id,
        app: claim.request.app.clone(),
        migration: true,
        priority: u8::try_from(place + 1).unwrap().min(10),
    };
    let request = PlanRequest {
        kind: order.kind.clone(),
        movability: apps.into_iter().enumerate().map(movable).collect(),
        policy: Policy::default(),
        excluded: order.excluded.clone(),
        refused: order.refused.clone(),
        external: BTreeMap::new(),
        fewest_moves: order.search.fewest_moves,
    };
    drover_api::scheduling::plan(&ledger, &request)
}

fn made(id: Uuid, kind: PlanSubject, result: PlanResult) -> PlanDocument {
    let document = document(id, kind, None);
    match result {
        PlanResult::Feasible(plan) => PlanDocument { state: PlanState::Proposed, plan: Some(plan), infeasible: None, ..document },
        PlanResult::Infeasible(why) => PlanDocument { infeasible: Some(why), ..document },
    }
}

#[async_trait]
impl Migration for FakePlans {
    async fn plan(&self, id: Uuid, order: &PlanOrder) -> Result<PlanDocument, PeerError> {
        let mut stored = self.stored.lock().unwrap();
        if let Some(known) = stored.get(&id) {
            return Ok(known.clone());
        }
        let mut unheard = self.unheard.lock().unwrap();
        if order.patient && *unheard > 0 {
            *unheard -= 1;
            return Err(super::refused("migration", 503, "capacity_unknown", vec![]));
        }
        let kind = PlanSubject::from(&order.kind);
        let reason = match &order.kind {
            PlanKind::Relieve { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        if let Some(ledger) = self.planner.lock().unwrap().clone() {
            let document = PlanDocument { reason, ..made(id, kind, plan_of_production(ledger.copy(), order)) };
            if !order.dry_run {
                stored.insert(id, document.clone());
            }
            return Ok(document);
        }
        let mut next = self.next.lock().unwrap();
        // A dry run leaves the plan in the queue.
        let plan = if order.dry_run { next.front().map(|planner| planner()) } else { next.pop_front().map(|planner| planner()) };
        let document = document(id, kind, plan);
        if !order.dry_run {
            stored.insert(id, document.clone());
        }
        Ok(document)
    }

    async fn plan_read(&self, id: Uuid) -> Result<Option<PlanDocument>, PeerError> {
        Ok(self.stored.lock().unwrap().get(&id).cloned())
    }

    async fn plan_accept(&self, id: Uuid, acceptance: &PlanAcceptance) -> Result<PlanDocument, PeerError> {
        let mut stored = self.stored.lock().unwrap();
        let document = stored.get_mut(&id).ok_or_else(|| super::refused("migration", 404, "not_found", vec![]))?;
        if document.state == PlanState::Accepted && document.operation == Some(acceptance.operation) {
            return Ok(document.clone());
        }
        if document.state != PlanState::Proposed {
            return Err(super::refused("migration", 409, "plan_not_proposed", vec![]));
        }
        (document.state, document.operation) = (PlanState::Accepted, Some(acceptance.operation));
        Ok(document.clone())
    }

    async fn reliefs(&self) -> Result<ReliefList, PeerError> {
        Ok(ReliefList { items: self.reliefs.lock().unwrap().clone(), suffering: self.suffering.lock().unwrap().clone() })
    }
    async fn has_documents(&self, collection: &str) -> Result<bool, PeerError> {
        Ok(self.below.lock().unwrap().iter().any(|path| path.starts_with(collection)))
    }

    async fn priority(&self, group: &str) -> Result<u8, PeerError> {
        let priorities = self.priorities.lock().unwrap();
        Ok(priorities.iter().find(|(end, _)| group.ends_with(end.as_str())).map_or(10, |(_, priority)| *priority))
    }
}
