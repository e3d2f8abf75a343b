//! Planning: which apps move where, so that a newcomer fits or a member becomes empty.
//!
//! ```text
//! candidates.rs    apps that may move                       rank.rs      the order of candidates (policy)
//! destinations.rs  where they may go                        peers.rs     calls of apps that move
//! newcomer.rs      the members on which room is made        search.rs    the victims: greedy, prune, systematic search
//! assignments.rs   assignments of a newcomer to members     homes.rs     destinations for given victims
//! least.rs         which assignments are worth a search     copies.rs    other copies of an app that moves
//! drain.rs         everything off a member                  bounds.rs    sets of victims that cannot do
//! relieve.rs       one app off a member where it suffers    best.rs      the best moves of a search so far
//! problem.rs       what is searched for, checks of moves    starting.rs  pods that have no nodes yet
//! outlook.rs       whether the schedulers find nodes        report.rs    the plan with all reasons
//! ```
//! Cascade depth 0: a destination must have room without further moves. A plan reserves nothing; the ledger checks it again when it is
//! applied. The work of the search is limited by the caller's meter; with the same steps the same input gives the same plan.

mod assignments;
mod best;
mod bounds;
mod candidates;
mod context;
mod copies;
mod destinations;
mod drain;
mod homes;
mod least;
mod movable;
mod newcomer;
mod outlook;
mod parameters;
mod peers;
mod problem;
mod rank;
mod relieve;
mod report;
mod search;
mod starting;

use std::collections::BTreeMap;

use uuid::Uuid;

use self::context::PlanningContext;
use crate::work::{Effort, StepMeter, WorkMeter};
use crate::{Candidate, Ledger, MemberKey, Movability, PlanKind, PlanRequest, PlanResult, Policy};

/// Makes a plan, or says why there is none, with the steps of [`StepMeter::default`]. The ledger is not changed.
pub fn plan(ledger: &Ledger, request: &PlanRequest) -> PlanResult {
    plan_within(ledger, request, &mut StepMeter::default())
}

/// Makes a plan, or says why there is none, as long as `meter` grants steps. The ledger is not changed.
pub fn plan_within(ledger: &Ledger, request: &PlanRequest, meter: &mut dyn WorkMeter) -> PlanResult {
    let grown = match &request.kind {
        PlanKind::Relieve { claims, demand: Some(demand), .. } => Some(relieve::with_demand(ledger, claims, demand)),
        PlanKind::Newcomer { apps, .. } => ledger.for_growth(apps.iter()),
        PlanKind::Relieve { .. } | PlanKind::Drain { .. } => None,
    };
    let ledger = grown.as_ref().unwrap_or(ledger);
    let mut context =
        PlanningContext::new(ledger, &request.movability, &request.policy, &request.excluded, &request.refused, &request.external);
    context.fewest_moves = request.fewest_moves;
    let mut effort = Effort::new(meter);
    match &request.kind {
        PlanKind::Newcomer { dig, apps } => newcomer::plan(&context, dig, apps, &mut effort),
        PlanKind::Drain { member } => drain::plan(&context, member, &mut effort),
        PlanKind::Relieve { member, claims, .. } => relieve::plan(&context, member, claims, &mut effort),
    }
}

/// The current candidates on a member, in the order in which a policy would take them, with their scores; then the apps that may not
/// move, with the reasons. None is marked as taken.
pub fn policy_test(
    ledger: &Ledger,
    member: &MemberKey,
    policy: &Policy,
    movability: &[Movability],
    external: &BTreeMap<Uuid, BTreeMap<String, f64>>,
) -> Vec<Candidate> {
    let nobody = BTreeMap::new();
    let context = PlanningContext::new(ledger, movability, policy, &nobody, &[], external);
    let Some(room) = ledger.room(member) else { return Vec::new() };
    let candidates = candidates::find(&context, &[room], None, &mut destinations::Expanded::default());
    let movable = candidates.movable.iter().map(|m| report::candidate(m, false, None));
    movable.chain(candidates.excluded).collect()
}
