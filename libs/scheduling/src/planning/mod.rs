//! Planning: who moves where so that a newcomer fits, or so that a member becomes empty.
//!
//! ```text
//! candidate.rs  who may move, and where to          rank.rs     in which order they are taken (policy)
//! newcomer.rs   which member room is made on        search.rs   which of them leave: greedy, prune, search on
//! choices.rs    ways to spread a newcomer           peers.rs    whom those who move call, and who calls them
//! drain.rs      everything off a member             report.rs   the plan, with every reason
//! ```
//! Depth 0: a destination has room as it is. A plan holds nothing; the ledger re-checks it when it is applied. The bounds
//! of the search are constants of `search.rs`, never time: the same input gives the same plan.

mod candidate;
mod choices;
mod context;
mod drain;
mod movable;
mod newcomer;
mod parameters;
mod peers;
mod rank;
mod report;
mod search;

use std::collections::BTreeMap;

use uuid::Uuid;

use self::context::World;
use crate::{Candidate, Ledger, MemberKey, Movability, PlanKind, PlanRequest, PlanResult, Policy};

/// Makes a plan. Changes nothing.
pub fn plan(ledger: &Ledger, request: &PlanRequest) -> PlanResult {
    let world = World::new(ledger, &request.movability, &request.policy, &request.excluded, &request.refused, &request.external);
    match &request.kind {
        PlanKind::Newcomer { dig, apps } => newcomer::plan(&world, dig, apps),
        PlanKind::Drain { member } => drain::plan(&world, member),
    }
}

/// Today's candidates on a member in the order in which a policy would take them, with their scores; then those that may
/// not move, with the reason. Nobody is taken.
pub fn policy_test(
    ledger: &Ledger,
    member: &MemberKey,
    policy: &Policy,
    movability: &[Movability],
    external: &BTreeMap<Uuid, BTreeMap<String, f64>>,
) -> Vec<Candidate> {
    let nobody = BTreeMap::new();
    let world = World::new(ledger, movability, policy, &nobody, &[], external);
    let Some(room) = ledger.room(member) else { return Vec::new() };
    let looked = candidate::look(&world, &[room], None);
    let movable = looked.movable.iter().map(|m| report::candidate(m, false, None));
    movable.chain(looked.excluded).collect()
}
