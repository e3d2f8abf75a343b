//! The fleet while applications come and go: the product's ledger, who runs where, and what it costs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_scheduling::{
    Amounts, AppRequest, ClaimState, Decision, Ledger, LedgerChange, MemberKey, Movability, Observed, PlanKind, PlanRequest, PlanResult,
    Policy, StepMeter, WhenFull, binding_id, plan_within,
};
use uuid::Uuid;

use super::account::Account;
use super::market::{Market, NODE, capacity, dig, number};
use super::trace::{App, Trace};
use crate::carry;

/// Limit on the steps of each plan, as in the product's own benchmark of plans.
const PLAN_STEPS: u64 = 10_000;

/// How a plan ended.
pub struct Planned {
    pub moves: usize,
    /// A plan was found.
    pub feasible: bool,
    /// The limit on steps ended the search.
    pub cut_short: bool,
    /// Time of the planner, in the unit of the clock.
    pub took: f64,
}

/// The fleet.
pub struct World<'t> {
    pub trace: &'t Trace,
    pub market: &'t Market,
    ledger: Ledger,
    /// Member and claim of each application that runs.
    at: Vec<Option<(usize, Uuid)>>,
    /// Applications by member.
    on: Vec<BTreeSet<usize>>,
    /// Requested millicores and MiB, by member.
    used: Vec<(i64, i64)>,
    /// The consent of owners of running applications who agree to moves, by group, as the product's database delivers it.
    movability: Vec<Movability>,
    pub account: Account,
    operations: u64,
}

impl<'t> World<'t> {
    pub fn new(trace: &'t Trace, market: &'t Market) -> Self {
        let members = market.keys.len();
        Self {
            trace,
            market,
            ledger: market.fleet(),
            at: vec![None; trace.apps.len()],
            on: vec![BTreeSet::new(); members],
            used: vec![(0, 0); members],
            movability: Vec::new(),
            account: Account::new(market),
            operations: 0,
        }
    }

    fn operation(&mut self) -> Uuid {
        self.operations += 1;
        carry::operation(self.operations)
    }

    /// The applications on a member.
    pub fn on(&self, member: usize) -> impl Iterator<Item = usize> {
        self.on[member].iter().copied()
    }

    /// Millicores and MiB that are free on a member.
    pub fn free(&self, member: usize) -> (i64, i64) {
        (NODE.0 - self.used[member].0, NODE.1 - self.used[member].1)
    }

    /// The product's decision. Returns whether the application runs now.
    pub fn decide(&mut self, app: usize, when_full: WhenFull, overflow: bool) -> bool {
        let request = self.market.request(&self.trace.apps[app], when_full);
        let operation = self.operation();
        let decision = carry::place(&mut self.ledger, operation, dig(app), &[request], overflow);
        let place = |decision: &Decision| {
            let placement = decision.apps.first()?.groups.first()?.placement.as_ref()?;
            Some((placement.member.clone(), placement.binding))
        };
        match decision.as_ref().and_then(place) {
            Some((member, claim)) => self.started(app, self.market.index(&member), claim),
            None => return false,
        }
        true
    }

    /// The product's plan for an application that has no room, carried out at once.
    pub fn make_room(&mut self, app: usize, policy: &Policy, when_full: WhenFull, clock: &dyn Fn() -> f64) -> Planned {
        let apps = vec![self.market.request(&self.trace.apps[app], when_full)];
        let request = PlanRequest {
            kind: PlanKind::Newcomer { dig: dig(app), apps },
            movability: std::mem::take(&mut self.movability),
            policy: policy.clone(),
            excluded: BTreeMap::new(),
            refused: Vec::new(),
            external: BTreeMap::new(),
            fewest_moves: false,
        };
        let began = clock();
        let result = plan_within(&self.ledger, &request, &mut StepMeter::new(PLAN_STEPS));
        let took = clock() - began;
        self.movability = request.movability;
        let PlanKind::Newcomer { apps, .. } = request.kind else { return Planned { moves: 0, feasible: false, cut_short: false, took } };
        let plan = match result {
            PlanResult::Feasible(plan) => plan,
            PlanResult::Infeasible(why) => return Planned { moves: 0, feasible: false, cut_short: why.cut_short, took },
        };
        let operation = self.operation();
        if !carry::carry_out(&mut self.ledger, operation, &dig(app), &apps, &plan) {
            return Planned { moves: 0, feasible: false, cut_short: false, took };
        }
        let mut moves = 0;
        for one in plan.waves.iter().flatten() {
            self.stopped(number(&one.dig));
            let claim = binding_id(operation, &format!("{}/{}", one.dig.name, one.app), &one.to);
            self.started(number(&one.dig), self.market.index(&one.to), claim);
            moves += 1;
        }
        for place in plan.newcomer.iter().flat_map(|app| &app.groups).filter_map(|group| group.placement.as_ref()) {
            let claim = binding_id(operation, &apps[0].app, &place.member);
            self.started(app, self.market.index(&place.member), claim);
        }
        Planned { moves, feasible: true, cut_short: false, took }
    }

    /// Starts an application on a member, if the ledger finds room there.
    pub fn start(&mut self, app: usize, member: usize) -> bool {
        let operation = self.operation();
        let key: MemberKey = self.market.keys[member].clone();
        let claim = binding_id(operation, "main", &key);
        let request: AppRequest = self.market.request(&self.trace.apps[app], WhenFull::Overflow);
        let take = LedgerChange::Take { claim, dig: dig(app), request: Arc::new(request), member: key, state: Some(ClaimState::Held) };
        let started = carry::transact(&mut self.ledger, operation, vec![take]);
        if started {
            self.started(app, member, claim);
        }
        started
    }

    /// Removes an application. Returns the member on which it ran.
    pub fn stop(&mut self, app: usize) -> Option<usize> {
        let (member, claim) = self.at[app]?;
        let operation = self.operation();
        let released = carry::transact(&mut self.ledger, operation, vec![LedgerChange::Release { claim }]);
        debug_assert!(released, "a release is always accepted");
        self.stopped(app);
        Some(member)
    }

    fn started(&mut self, app: usize, member: usize, claim: Uuid) {
        self.at[app] = Some((member, claim));
        self.on[member].insert(app);
        self.count(app, member, 1);
        let one = &self.trace.apps[app];
        if one.movable {
            let word = Movability { dig: dig(app).id, app: "main".to_owned(), migration: true, priority: one.priority };
            let at = self.movability.partition_point(|other| other.dig < word.dig);
            self.movability.insert(at, word);
        }
        self.observe(member);
    }

    fn stopped(&mut self, app: usize) {
        let Some((member, _)) = self.at[app].take() else { return };
        self.on[member].remove(&app);
        self.count(app, member, -1);
        if let Ok(at) = self.movability.binary_search_by_key(&dig(app).id, |word| word.dig) {
            self.movability.remove(at);
        }
        self.observe(member);
    }

    fn count(&mut self, app: usize, member: usize, sign: i64) {
        let one: &App = &self.trace.apps[app];
        self.account.change(self.market.provider[member], sign * one.millicores());
        let used = &mut self.used[member];
        *used = (used.0 + sign * one.millicores(), used.1 + sign * one.mebibytes());
    }

    /// Lets a member report what its pods use, as metrics.k8s.io would.
    fn observe(&mut self, member: usize) {
        let observed = |app: &usize| {
            let (_, claim) = self.at[*app]?;
            let one = &self.trace.apps[*app];
            let used = Amounts { cpu: one.millicores() * one.used / 100, ..Amounts::default() };
            Some((claim, Observed { used: Some(used), ..Observed::default() }))
        };
        let observed = self.on[member].iter().filter_map(observed).collect();
        self.ledger.set_capacity(&self.market.keys[member], Some(Arc::new(capacity(observed))));
    }
}
