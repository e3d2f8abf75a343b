//! How plans end. Orchestrator carries plans out and does not report back; migration asks it for the operations of open plans, so
//! that the death of either service loses nothing.

use drover_api::operations::{Operation, OperationState};
use drover_api::plans::{PlanState, PlanSubject};
use drover_service::{Answer, codes};
use uuid::Uuid;

use super::{App, PlanError};
use crate::store::plans::{self, OpenPlan, PlanOutcome};

/// What the end of an operation means for its plan. `None`: it has not ended. An operation that orchestrator no longer knows has ended.
fn outcome(accepted: bool, id: Uuid, operation: Option<&Operation>) -> Option<PlanOutcome> {
    let end = |state, why| Some(PlanOutcome { state, why });
    let Some(operation) = operation else {
        let state = if accepted { PlanState::Refused } else { PlanState::Superseded };
        return end(state, Some(format!("operation {id} is no longer known")));
    };
    let told = || {
        let reasons: Vec<&str> = std::iter::once(operation.message.as_str()).chain(operation.reasons.iter().map(String::as_str)).collect();
        reasons.join(": ")
    };
    match (operation.state, accepted) {
        (OperationState::Running | OperationState::Undoing | OperationState::Refused, _) => None,
        (OperationState::Succeeded, true) => end(PlanState::Applied, None),
        // The moves stand; only the room that they made was lost.
        (OperationState::Failed, true) if operation.code.as_deref() == Some("room_lost") => end(PlanState::Applied, Some(told())),
        (OperationState::Failed, true) => end(PlanState::Refused, Some(told())),
        (OperationState::Cancelled, true) => end(PlanState::Refused, Some(format!("operation {id} was cancelled"))),
        (OperationState::Succeeded, false) => end(PlanState::Superseded, Some(format!("operation {id} succeeded without it"))),
        (OperationState::Failed, false) => end(PlanState::Superseded, Some(format!("operation {id} failed before it used the plan"))),
        (OperationState::Cancelled, false) => {
            end(PlanState::Superseded, Some(format!("operation {id} was cancelled before it used the plan")))
        }
    }
}

impl App {
    /// Records the end of all plans whose operation has ended, and of users' plans for groups that got room without them. Returns how
    /// many plans are still open.
    ///
    /// # Errors
    /// Orchestrator is unavailable, or the store fails.
    pub async fn settle_plans(&self) -> Result<usize, PlanError> {
        let mut open = 0;
        for plan in plans::open(&self.store).await? {
            match self.outcome_of(&plan).await? {
                Some(outcome) => plans::end(&self.store, plan.id, &outcome).await?,
                None => open += 1,
            }
        }
        Ok(open)
    }

    async fn outcome_of(&self, plan: &OpenPlan) -> Result<Option<PlanOutcome>, PlanError> {
        let accepted = plan.operation.is_some();
        if let Some(id) = plan.operation.or(plan.made_for) {
            let asked = &self.orchestrator;
            return match asked.operation_get(&id, None).await.answer(asked) {
                Ok(operation) => Ok(outcome(accepted, id, Some(&operation))),
                Err(error) if error.code() == Some(codes::NOT_FOUND.name) => Ok(outcome(accepted, id, None)),
                Err(error) => Err(error.into()),
            };
        }
        let PlanSubject::Newcomer(dig) = &plan.subject else { return Ok(None) };
        Ok(self
            .fleet
            .has_claim_of(dig.id)
            .then(|| PlanOutcome { state: PlanState::Superseded, why: Some(format!("{} got room without it", dig.name)) }))
    }

    /// Deletes plans that are older than the configured number of days, except those that are being carried out.
    ///
    /// # Errors
    /// The store fails.
    pub async fn prune_plans(&self) -> Result<u64, PlanError> {
        Ok(plans::prune(&self.store, self.keep_plans_days).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(state: OperationState, code: Option<&str>) -> Operation {
        Operation {
            id: Uuid::nil(),
            kind: "relocate".into(),
            subject: String::new(),
            state,
            message: "the moves stand".into(),
            code: code.map(str::to_owned),
            reasons: vec!["c0: full".into()],
            steps: vec![],
            children: vec![],
            parent: None,
            plan: None,
            moves: vec![],
            kept: vec![],
            changed_since_dry_run: vec![],
            leftovers: vec![],
            created_at: String::new(),
            finished_at: None,
        }
    }

    #[test]
    fn plan_ends_as_its_operation_ended() {
        let end = |accepted, state, code| outcome(accepted, Uuid::nil(), Some(&operation(state, code))).map(|end| end.state);
        assert_eq!(end(true, OperationState::Running, None), None);
        assert_eq!(end(true, OperationState::Undoing, None), None);
        assert_eq!(end(true, OperationState::Succeeded, None), Some(PlanState::Applied));
        assert_eq!(end(true, OperationState::Failed, Some("room_lost")), Some(PlanState::Applied));
        assert_eq!(end(true, OperationState::Failed, Some("world_changed")), Some(PlanState::Refused));
        assert_eq!(end(true, OperationState::Cancelled, None), Some(PlanState::Refused));
        assert_eq!(end(false, OperationState::Succeeded, None), Some(PlanState::Superseded));
        assert_eq!(outcome(true, Uuid::nil(), None).map(|end| end.state), Some(PlanState::Refused));
        let failed = outcome(true, Uuid::nil(), Some(&operation(OperationState::Failed, None))).and_then(|end| end.why);
        assert_eq!(failed.as_deref(), Some("the moves stand: c0: full"));
    }
}
