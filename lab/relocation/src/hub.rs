//! What Drover does with an arriving application: its decision, and if there is no room its plan, carried out at once and without failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_scheduling::{
    Amounts, AppRequest, Claim, ClaimState, Ledger, LedgerChange, Movability, Observed, PlanKind, PlanRequest, PlanResult, Policy,
    StepMeter, WhenFull, plan_within,
};
use uuid::Uuid;

use crate::carry;
use crate::draw::{CLUSTERS, Draw, Microservice, NodeSize};
use crate::fleet::{capacity, dig, fleet, index, key, position};

/// The priority of every microservice in its migration intent.
const MIGRATION_PRIORITY: u8 = 10;

/// Priorities of the providers, 1 (filled first) to 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference {
    pub private: u8,
    pub public: u8,
}

impl Preference {
    /// No cluster is preferred.
    pub const NONE: Self = Self { private: 10, public: 10 };
    /// The private clusters are filled first.
    pub const PRIVATE_FIRST: Self = Self { private: 1, public: 10 };
}

/// How a plan ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    pub feasible: bool,
    /// Number of apps that moved.
    pub moves: usize,
    /// The limit on steps ended a search, so that a plan may exist although none was found.
    pub cut_short: bool,
}

/// The ledger of a fleet in memory, and the owners' consent to moves.
#[derive(Clone)]
pub struct Hub<'d> {
    draw: &'d Draw,
    size: NodeSize,
    pub ledger: Ledger,
    movability: Vec<Movability>,
    operations: u64,
}

impl<'d> Hub<'d> {
    pub fn new(draw: &'d Draw, size: NodeSize, preference: Preference) -> Self {
        let ledger = fleet(size, preference.private, preference.public);
        Self { draw, size, ledger, movability: Vec::new(), operations: 0 }
    }

    /// A new operation; the draw decides its id.
    pub fn operation(&mut self) -> Uuid {
        self.operations += 1;
        carry::operation(self.operations)
    }

    /// Places these microservices of an application where there is room: all or none.
    pub fn place(&mut self, arrival: usize, apps: &[AppRequest], overflow: bool) -> bool {
        let operation = self.operation();
        carry::place(&mut self.ledger, operation, dig(arrival), apps, overflow).is_some()
    }

    /// Plans room for an application, and carries out the plan.
    pub fn make_room(&mut self, arrival: usize, apps: &[AppRequest], policy: &Policy, steps: u64) -> Planned {
        let request = PlanRequest {
            kind: PlanKind::Newcomer { dig: dig(arrival), apps: apps.to_vec() },
            movability: self.movability.clone(),
            policy: policy.clone(),
            excluded: BTreeMap::new(),
            refused: Vec::new(),
            external: BTreeMap::new(),
            fewest_moves: false,
        };
        match plan_within(&self.ledger, &request, &mut StepMeter::new(steps)) {
            PlanResult::Feasible(plan) => {
                let operation = self.operation();
                let feasible = carry::carry_out(&mut self.ledger, operation, &dig(arrival), apps, &plan);
                Planned { feasible, moves: plan.waves.iter().map(Vec::len).sum(), cut_short: false }
            }
            PlanResult::Infeasible(why) => Planned { feasible: false, moves: 0, cut_short: why.cut_short },
        }
    }

    /// Removes the old copies of apps that have moved.
    pub fn release_leaving(&mut self, operation: Uuid) -> bool {
        let leaving = self.ledger.claims().filter(|claim| claim.state == ClaimState::Leaving).map(|claim| claim.id);
        let release = leaving.map(|claim| LedgerChange::Release { claim }).collect();
        self.transact(operation, release)
    }

    /// Makes all changes or none. Returns whether the ledger accepted them.
    pub fn transact(&mut self, operation: Uuid, changes: Vec<LedgerChange>) -> bool {
        carry::transact(&mut self.ledger, operation, changes)
    }

    /// Records that the owner of an application agrees to moves.
    pub fn agree_to_moves(&mut self, arrival: usize, apps: &[AppRequest]) {
        let dig = dig(arrival).id;
        let agrees = |app: &AppRequest| Movability { dig, app: app.app.clone(), migration: true, priority: MIGRATION_PRIORITY };
        self.movability.extend(apps.iter().map(agrees));
    }

    /// The owners' consent.
    pub fn movability(&self) -> &[Movability] {
        &self.movability
    }

    /// Lets the fleet report what its pods use, as metrics.k8s.io would, and how long they took to be ready.
    pub fn observe(&mut self) {
        for cluster in 0..CLUSTERS.len() {
            let observed = |claim: &Arc<Claim>| {
                let one = self.microservice(claim);
                let used = Amounts { cpu: one.map_or(0, |one| one.cpu_used), ..Amounts::default() };
                let ready_s = one.and_then(|one| one.ready_ms).map(|ms| f64::from(ms) / 1000.0);
                (claim.id, Observed { used: Some(used), ready_s, ..Observed::default() })
            };
            let observed = self.ledger.claims_of(&key(cluster)).map(observed).collect();
            self.ledger.set_capacity(&key(cluster), Some(Arc::new(capacity(self.size, observed))));
        }
    }

    fn microservice(&self, claim: &Claim) -> Option<&'d Microservice> {
        self.draw.applications[self.arrival_of(claim)?].microservices.get(position(&claim.request.app))
    }

    fn arrival_of(&self, claim: &Claim) -> Option<usize> {
        (0..self.draw.applications.len()).find(|arrival| dig(*arrival).id == claim.dig.id)
    }

    /// The cluster of each microservice of each application; `None` if it does not run.
    pub fn places(&self) -> Vec<Vec<Option<usize>>> {
        let mut places: Vec<Vec<Option<usize>>> = self.draw.applications.iter().map(|one| vec![None; one.microservices.len()]).collect();
        for claim in self.ledger.claims().filter(|claim| claim.state == ClaimState::Held) {
            if let Some(arrival) = self.arrival_of(claim) {
                places[arrival][position(&claim.request.app)] = Some(index(&claim.member));
            }
        }
        places
    }
}

/// Whether an app of the application insists on its best provider.
pub fn insists(apps: &[AppRequest]) -> bool {
    apps.iter().any(|app| app.terms.when_full == WhenFull::Preferred)
}
