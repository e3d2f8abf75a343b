//! A plan that moves one of some apps off a member, because it suffers there: the first in the order of the policy that has a place.

use std::sync::Arc;

use uuid::Uuid;

use super::candidates::{Candidates, find};
use super::context::PlanningContext;
use super::destinations::Expanded;
use super::problem::RoomProblem;
use super::report::{self, Found};
use crate::work::Effort;
use crate::{AppRequest, Demand, Infeasible, Ledger, MemberKey, PlanResult, WhyNot};

/// The ledger as if these claims were for this demand already.
pub(crate) fn with_demand(ledger: &Ledger, claims: &[Uuid], demand: &Demand) -> Ledger {
    let mut ledger = ledger.clone();
    for id in claims {
        if let Some(claim) = ledger.claim(id).cloned() {
            let mut claim = Arc::unwrap_or_clone(claim);
            claim.request = Arc::new(AppRequest { demand: demand.clone(), ..AppRequest::clone(&claim.request) });
            ledger.put_claim(*id, Some(Arc::new(claim)));
        }
    }
    ledger
}

pub(crate) fn plan(context: &PlanningContext<'_>, member: &MemberKey, claims: &[Uuid], effort: &mut Effort<'_>) -> PlanResult {
    let infeasible = |reason: String, candidates: Candidates<'_>, effort: &Effort<'_>| {
        PlanResult::Infeasible(Infeasible {
            members: vec![WhyNot { member: member.clone(), reason }],
            awaited: candidates.awaited.iter().copied().cloned().collect(),
            leftovers: Vec::new(),
            candidates: report::refused(candidates),
            cut_short: false,
            examined: effort.examined,
        })
    };
    let Some(room) = context.ledger.room(member) else {
        return infeasible(format!("there is no cluster {member}"), Candidates::default(), effort);
    };
    let mut candidates = find(context, &[room], None, &mut Expanded::default());
    candidates.movable.retain(|movable| claims.contains(&movable.claim.id));
    candidates.excluded.retain(|excluded| claims.contains(&excluded.claim));
    effort.examined += u64::try_from(candidates.movable.len()).unwrap_or(u64::MAX);
    let Some((index, to)) = candidates.movable.iter().enumerate().find_map(|(index, movable)| Some((index, movable.best()?))) else {
        let reason = match candidates.movable.len() {
            0 => "none of the apps that suffer there may move".to_owned(),
            count => format!("{count} of the apps that suffer there may move, but none has room on another cluster"),
        };
        return infeasible(reason, candidates, effort);
    };
    let case = RoomProblem { context, slots: &[], homes: &[], movable: &candidates.movable };
    let mut plan = report::feasible(context, &case, Found::new(&candidates, vec![(index, to)]), Vec::new(), effort);
    plan.targets = vec![member.clone()];
    PlanResult::Feasible(plan)
}
