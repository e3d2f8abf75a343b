//! Changes of the product's ledger: a decision, and a plan that is carried out at once and without failures. The ledger refuses what does
//! not fit.

use std::sync::Arc;

use drover_scheduling::{
    AppRequest, ClaimState, Decision, DecisionRequest, DigRef, Ledger, LedgerChange, LedgerTransaction, Outcome, Plan, binding_id,
};
use uuid::Uuid;

/// The fence of every write: there is one writer.
const FENCE: i64 = 1;

/// The id of the operation with this number.
pub fn operation(number: u64) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("operation {number}").as_bytes())
}

/// Places these apps where there is room: all or none.
pub fn place(ledger: &mut Ledger, operation: Uuid, dig: DigRef, apps: &[AppRequest], overflow: bool) -> Option<Decision> {
    let request = DecisionRequest { dig, apps: apps.to_vec(), overflow, refused: Vec::new(), operation, fence: FENCE };
    let decision = ledger.decide(operation, &request);
    (decision.outcome == Outcome::Placed).then(|| {
        ledger.apply_decision(&request, &decision).keep();
        decision
    })
}

/// New copies of the victims start beside the old ones; then the old ones leave, and the newcomer starts.
pub fn carry_out(ledger: &mut Ledger, operation: Uuid, dig: &DigRef, apps: &[AppRequest], plan: &Plan) -> bool {
    let mut changes = Vec::new();
    for one in plan.waves.iter().flatten() {
        let Some(request) = ledger.claim(&one.claim).map(|claim| Arc::clone(&claim.request)) else { return false };
        changes.push(LedgerChange::Leave { claim: one.claim, member: one.from.clone() });
        changes.push(LedgerChange::Take {
            claim: binding_id(operation, &format!("{}/{}", one.dig.name, one.app), &one.to),
            dig: one.dig.clone(),
            request,
            member: one.to.clone(),
            state: Some(ClaimState::Held),
        });
    }
    let mut waiting = Vec::new();
    for (app, place) in
        plan.newcomer.iter().flat_map(|app| app.groups.iter().filter_map(move |group| Some((app, group.placement.as_ref()?))))
    {
        let Some(request) = apps.iter().find(|request| request.app == app.app) else { return false };
        let claim = binding_id(operation, &app.app, &place.member);
        let request = Arc::new(request.clone());
        changes.push(LedgerChange::Take { claim, dig: dig.clone(), request, member: place.member.clone(), state: None });
        waiting.push(claim);
    }
    let left = plan.waves.iter().flatten().map(|one| LedgerChange::Release { claim: one.claim }).collect();
    transact(ledger, operation, changes)
        && transact(ledger, operation, left)
        && transact(ledger, operation, waiting.into_iter().map(|claim| LedgerChange::Admit { claim }).collect())
}

/// Makes all changes or none. Returns whether the ledger accepted them.
pub fn transact(ledger: &mut Ledger, operation: Uuid, changes: Vec<LedgerChange>) -> bool {
    ledger.transact(&LedgerTransaction { operation, fence: FENCE, changes }).map(|(_, undo)| undo.keep()).is_ok()
}
