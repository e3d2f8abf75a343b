//! Placement and cluster-manager in memory: the ledger code of production, with its behaviour for repeated requests and stale fences.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use drover_api::agents::AgentOrders;
use drover_api::ledger::{ClaimHead, ExplainQuestion, ExplainedDecision, Explanation, LedgerChange, LedgerReceipt, LedgerTransaction};
use drover_api::members::{SecretKubeconfig, UserKubeconfig, UserOrder, UserState};
use drover_api::scheduling::{
    Amounts, Capacity, Claim, Cordon, Decision, DecisionRequest, Difference, FleetMember, Ledger, MemberKey, Observed,
};
use drover_orchestrator::peers::{ClusterManager, PeerError, Placement};
use uuid::Uuid;

fn conflict(differences: Vec<Difference>) -> PeerError {
    let reasons = differences.into_iter().map(|difference| format!("{}: {}", difference.code, difference.detail)).collect();
    super::refused("placement", 409, "ledger_conflict", reasons)
}

#[derive(Default)]
struct Inner {
    ledger: Ledger,
    decisions: HashMap<Uuid, Decision>,
    /// What was asked for in decisions, in order.
    asked: Vec<DecisionRequest>,
    receipts: HashMap<Uuid, LedgerReceipt>,
    released: HashMap<Uuid, i64>,
    dry_decisions: usize,
    full_until_refused: Option<MemberKey>,
    troubles: HashMap<Uuid, ReleaseFault>,
    /// Claims of which a release has failed.
    failed: HashSet<Uuid>,
    /// Users of logical clouds: `user@cluster in namespace`.
    users: BTreeMap<Uuid, String>,
    agents: AgentOrders,
}

/// A fault of all releases of a claim until [`FakeLedger::heal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseFault {
    Fails,
    Hangs,
}

impl Inner {
    fn foreign(&mut self, key: &MemberKey, cpu: i64) {
        let mut capacity = Capacity::clone(self.ledger.room(key).unwrap().capacity.as_ref().unwrap());
        Arc::make_mut(&mut capacity.nodes)[0].foreign.cpu = cpu;
        self.ledger.set_capacity(key, Some(Arc::new(capacity)));
    }

    fn refused(&mut self, transaction: &LedgerTransaction) {
        let taken =
            |key: &MemberKey| transaction.changes.iter().any(|change| matches!(change, LedgerChange::Take { member, .. } if member == key));
        if let Some(key) = self.full_until_refused.take_if(|key| taken(key)) {
            self.foreign(&key, 0);
        }
    }
}

/// Binding of an app that has left.
const LEFT: Uuid = Uuid::from_u128(0x1ef7);

#[derive(Default)]
pub struct FakeLedger(Mutex<Inner>);

impl FakeLedger {
    pub fn add_member(&self, member: FleetMember, capacity: Capacity) {
        let mut inner = self.0.lock().unwrap();
        let key = member.key.clone();
        inner.ledger.set_member(member);
        inner.ledger.set_capacity(&key, Some(Arc::new(capacity)));
    }

    /// What cluster-manager says about agents.
    pub fn set_agents(&self, orders: AgentOrders) {
        self.0.lock().unwrap().agents = orders;
    }

    /// Why a member is closed to new copies.
    pub fn cordon_of(&self, key: &MemberKey) -> Option<String> {
        self.0.lock().unwrap().ledger.room(key)?.member.as_ref()?.cordoned.as_ref().map(|cordon| cordon.reason.clone())
    }

    /// Other pods use this much CPU (millicores) of a member's node.
    pub fn foreign(&self, key: &MemberKey, cpu: i64) {
        self.0.lock().unwrap().foreign(key, cpu);
    }

    /// So many pods of this size (CPU in millicores) run on a member's node for a binding.
    pub fn observe(&self, key: &MemberKey, binding: Uuid, pods: i64, cpu: i64) {
        let mut inner = self.0.lock().unwrap();
        let mut capacity = Capacity::clone(inner.ledger.room(key).unwrap().capacity.as_ref().unwrap());
        let node = capacity.nodes[0].name.clone();
        let requests = BTreeMap::from([(node, Amounts::pod(cpu, 0).times(pods))]).into();
        capacity.observed.insert(binding, Observed { requests, ..Observed::default() });
        inner.ledger.set_capacity(key, Some(Arc::new(capacity)));
    }

    /// Pods of an app that has left still use this much CPU (millicores) of a member's node; 0: no longer.
    pub fn leftover(&self, key: &MemberKey, cpu: i64) {
        let mut inner = self.0.lock().unwrap();
        let mut capacity = Capacity::clone(inner.ledger.room(key).unwrap().capacity.as_ref().unwrap());
        let node = capacity.nodes[0].name.clone();
        let observed = Observed { requests: BTreeMap::from([(node, Amounts { cpu, ..Amounts::default() })]).into(), ..Observed::default() };
        match cpu {
            0 => drop(capacity.observed.remove(&LEFT)),
            _ => drop(capacity.observed.insert(LEFT, observed)),
        }
        inner.ledger.set_capacity(key, Some(Arc::new(capacity)));
    }

    /// A member has no room until a claim on it is refused.
    pub fn full_until_refused(&self, key: &MemberKey) {
        let mut inner = self.0.lock().unwrap();
        inner.foreign(key, 1000);
        inner.full_until_refused = Some(key.clone());
    }

    /// Whether a member is silent: nothing is known of its capacity.
    pub fn silent(&self, key: &MemberKey, silent: bool) {
        self.0.lock().unwrap().ledger.set_ages(|member| if member == key && silent { None } else { Some(0) });
    }

    /// All claims by app, member and state: ids are random, so they give no order.
    pub fn all(&self) -> Vec<Claim> {
        let mut claims: Vec<Claim> = self.0.lock().unwrap().ledger.claims().map(|claim| Claim::clone(claim)).collect();
        claims.sort_by_key(|claim| (claim.request.app.clone(), claim.member.clone(), format!("{:?}", claim.state)));
        claims
    }

    /// Number of decisions, without repeats and dry runs.
    pub fn decisions(&self) -> usize {
        self.0.lock().unwrap().decisions.len()
    }

    /// Number of dry runs of decisions.
    pub fn dry_decisions(&self) -> usize {
        self.0.lock().unwrap().dry_decisions
    }

    /// `app@member state`, sorted.
    pub fn summary(&self) -> Vec<String> {
        self.all()
            .iter()
            .map(|claim| format!("{}@{} {:?}", claim.request.app, claim.member.cluster(), claim.state).to_lowercase())
            .collect()
    }

    /// Releases of this claim have this fault from now on.
    pub fn trouble(&self, claim: Uuid, trouble: ReleaseFault) {
        self.0.lock().unwrap().troubles.insert(claim, trouble);
    }

    /// Ends all faults; releases that hang continue.
    pub fn heal(&self) {
        self.0.lock().unwrap().troubles.clear();
    }

    /// Whether a release of this claim has failed by its fault.
    pub fn has_failed(&self, claim: Uuid) -> bool {
        self.0.lock().unwrap().failed.contains(&claim)
    }

    fn trouble_of(&self, transaction: &LedgerTransaction) -> Option<ReleaseFault> {
        let mut inner = self.0.lock().unwrap();
        let troubled = transaction.changes.iter().find_map(|change| match change {
            LedgerChange::Release { claim } => inner.troubles.get(claim).map(|trouble| (*claim, *trouble)),
            _ => None,
        });
        let (claim, trouble) = troubled?;
        if trouble == ReleaseFault::Fails {
            inner.failed.insert(claim);
        }
        Some(trouble)
    }

    /// The ledger as it is.
    pub fn copy(&self) -> Ledger {
        self.0.lock().unwrap().ledger.clone()
    }

    /// Replaces the labels of a member by this one.
    pub fn set_label(&self, key: &MemberKey, label: &str) {
        let mut inner = self.0.lock().unwrap();
        let member = inner.ledger.room(key).and_then(|room| room.member.clone()).unwrap();
        inner.ledger.set_member(FleetMember { labels: vec![label.to_owned()], ..member });
    }

    /// The users of logical clouds as `user@cluster in namespace`, sorted.
    pub fn users(&self) -> Vec<String> {
        let mut users: Vec<String> = self.0.lock().unwrap().users.values().cloned().collect();
        users.sort();
        users
    }

    pub fn put(&self, claim: Claim) {
        self.0.lock().unwrap().ledger.put_claim(claim.id, Some(Arc::new(claim)));
    }
}

#[async_trait]
impl ClusterManager for FakeLedger {
    async fn cordon(&self, key: &MemberKey, reason: &str) -> Result<(), PeerError> {
        let mut inner = self.0.lock().unwrap();
        let member = inner.ledger.room(key).and_then(|room| room.member.clone());
        let cordoned = Some(Cordon { since: "now".to_owned(), reason: reason.to_owned() });
        inner.ledger.set_member(FleetMember { cordoned, ..member.unwrap() });
        Ok(())
    }

    async fn issue_user(&self, member: &MemberKey, id: Uuid, order: &UserOrder) -> Result<UserState, PeerError> {
        self.0.lock().unwrap().users.insert(id, format!("{}@{member} in {}", order.user_name, order.namespace));
        Ok(UserState { expires: Some("2030-01-01T00:00:00Z".to_owned()), reason: None })
    }

    async fn user_kubeconfig(&self, _: &MemberKey, id: Uuid) -> Result<UserKubeconfig, PeerError> {
        let user = self.0.lock().unwrap().users.get(&id).cloned();
        user.map(|user| UserKubeconfig { kubeconfig: SecretKubeconfig::new(user) })
            .ok_or_else(|| super::refused("cluster-manager", 404, "not_found", vec![]))
    }

    async fn forget_user(&self, _: &MemberKey, id: Uuid) -> Result<(), PeerError> {
        self.0.lock().unwrap().users.remove(&id);
        Ok(())
    }

    async fn labels(&self, provider: &str) -> Result<BTreeMap<String, BTreeSet<String>>, PeerError> {
        let inner = self.0.lock().unwrap();
        let members = inner.ledger.rooms().filter_map(|room| room.member.clone()).filter(|member| member.key.provider() == provider);
        Ok(members.map(|member| (member.key.cluster().to_owned(), member.labels.iter().map(ToString::to_string).collect())).collect())
    }

    async fn agents(&self) -> Result<AgentOrders, PeerError> {
        Ok(self.0.lock().unwrap().agents.clone())
    }
}

#[async_trait]
impl Placement for FakeLedger {
    async fn decide(&self, id: Uuid, request: &DecisionRequest) -> Result<Decision, PeerError> {
        let mut inner = self.0.lock().unwrap();
        if let Some(known) = inner.decisions.get(&id) {
            return Ok(known.clone());
        }
        let decision = inner.ledger.decide(id, request);
        inner.ledger.apply_decision(request, &decision).keep();
        inner.decisions.insert(id, decision.clone());
        inner.asked.push(request.clone());
        Ok(decision)
    }

    async fn decide_dry(&self, request: &DecisionRequest) -> Result<Decision, PeerError> {
        let mut inner = self.0.lock().unwrap();
        inner.dry_decisions += 1;
        Ok(inner.ledger.decide(Uuid::now_v7(), request))
    }

    async fn transact(&self, id: Uuid, transaction: &LedgerTransaction) -> Result<LedgerReceipt, PeerError> {
        while let Some(trouble) = self.trouble_of(transaction) {
            match trouble {
                ReleaseFault::Fails => return Err(PeerError::Unavailable { peer: "placement", detail: "injected fault".into() }),
                ReleaseFault::Hangs => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        let mut inner = self.0.lock().unwrap();
        if let Some(known) = inner.receipts.get(&id) {
            return Ok(known.clone());
        }
        let late = transaction.changes.iter().any(|change| {
            matches!(change, LedgerChange::Take { claim, .. } if inner.released.get(claim).is_some_and(|fence| *fence > transaction.fence))
        });
        if late {
            return Err(super::refused("placement", 409, "ledger_conflict", vec!["stale fence".into()]));
        }
        match inner.ledger.transact(transaction) {
            Ok((receipt, undo)) => {
                undo.keep();
                for change in &transaction.changes {
                    if let LedgerChange::Release { claim } = change {
                        inner.released.insert(*claim, transaction.fence);
                    }
                }
                inner.receipts.insert(id, receipt.clone());
                Ok(receipt)
            }
            Err(differences) => {
                inner.refused(transaction);
                Err(conflict(differences))
            }
        }
    }

    async fn transact_dry(&self, transaction: &LedgerTransaction) -> Result<LedgerReceipt, PeerError> {
        let mut inner = self.0.lock().unwrap();
        let (receipt, undo) = inner.ledger.transact(transaction).map_err(conflict)?;
        inner.ledger.undo(undo);
        Ok(receipt)
    }

    /// Only what would be decided now.
    async fn explain(&self, question: &ExplainQuestion) -> Result<Explanation, PeerError> {
        let inner = self.0.lock().unwrap();
        let asked = inner.asked.iter().rev().find_map(|asked| {
            let ours = (&asked.dig.project, &asked.dig.composite_app) == (&question.project, &question.group);
            let app = asked.apps.iter().find(|app| app.app == question.app).filter(|_| ours)?;
            Some((asked.dig.clone(), app.clone()))
        });
        let Some((dig, app)) = asked else { return Err(super::refused("placement", 404, "not_found", vec![])) };
        let mut ledger = inner.ledger.clone();
        let own: Vec<Uuid> =
            ledger.claims().filter(|claim| claim.dig.id == dig.id && claim.request.app == app.app).map(|claim| claim.id).collect();
        own.into_iter().for_each(|claim| drop(ledger.put_claim(claim, None)));
        let refused = question.refused.clone();
        let request =
            DecisionRequest { dig: dig.clone(), apps: vec![app], overflow: false, refused, operation: Uuid::nil(), fence: i64::MAX };
        let decided = ledger.decide(Uuid::nil(), &request);
        let (seq, outcome, decision) = (decided.seq, decided.outcome, decided.apps[0].clone());
        let now = Some(ExplainedDecision { id: None, at: String::new(), seq, outcome, decision });
        let (project, app) = (question.project.clone(), question.app.clone());
        Ok(Explanation { project, dig, app, room: vec![], moved: false, decided: None, now, calls: None })
    }

    async fn claims_of(&self, operation: Uuid) -> Result<Vec<Claim>, PeerError> {
        Ok(self.all().into_iter().filter(|claim| claim.operation == operation).collect())
    }

    async fn claims(&self) -> Result<Vec<ClaimHead>, PeerError> {
        Ok(self.all().iter().map(ClaimHead::from).collect())
    }
}
