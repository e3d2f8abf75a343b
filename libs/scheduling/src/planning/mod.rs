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
mod drain;
mod newcomer;
mod parameters;
mod peers;
mod rank;
mod report;
mod search;

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use crate::cel::Expression;
use crate::{Candidate, Claim, Ledger, MemberKey, Movability, PlanKind, PlanRequest, PlanResult, Policy};

/// Makes a plan. Changes nothing.
pub fn plan(ledger: &Ledger, request: &PlanRequest) -> PlanResult {
    let world = World::new(ledger, &request.movability, &request.policy, &request.excluded, &request.external);
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
    let world = World::new(ledger, movability, policy, &nobody, external);
    let Some(room) = ledger.room(member) else { return Vec::new() };
    let looked = candidate::look(&world, &[room], None);
    let movable = looked.movable.iter().map(|m| report::candidate(m, false, None));
    movable.chain(looked.excluded).collect()
}

/// What planning looks at.
struct World<'a> {
    ledger: &'a Ledger,
    policy: &'a Policy,
    movability: HashMap<(Uuid, &'a str), &'a Movability>,
    excluded: &'a BTreeMap<Uuid, String>,
    external: &'a BTreeMap<Uuid, BTreeMap<String, f64>>,
    /// Claims by deployment intent group, in order of their ids.
    digs: HashMap<Uuid, Vec<&'a Claim>>,
    /// The policy's algorithms in the order in which they apply, compiled; none where a definition is missing or wrong.
    algorithms: Vec<(&'a crate::AlgorithmUse, Option<(&'a crate::Algorithm, Expression)>)>,
}

impl<'a> World<'a> {
    fn new(
        ledger: &'a Ledger,
        movability: &'a [Movability],
        policy: &'a Policy,
        excluded: &'a BTreeMap<Uuid, String>,
        external: &'a BTreeMap<Uuid, BTreeMap<String, f64>>,
    ) -> Self {
        let mut digs: HashMap<Uuid, Vec<&Claim>> = HashMap::new();
        for claim in ledger.claims() {
            digs.entry(claim.dig.id).or_default().push(claim);
        }
        for claims in digs.values_mut() {
            claims.sort_by_key(|claim| claim.id);
        }
        // Two words on one app: the stricter one counts, whatever the order they come in.
        let mut words: HashMap<(Uuid, &str), &Movability> = HashMap::new();
        for word in movability {
            let known = words.entry((word.dig, &word.app)).or_insert(word);
            if (word.migration, std::cmp::Reverse(word.priority)) < (known.migration, std::cmp::Reverse(known.priority)) {
                *known = word;
            }
        }
        Self { ledger, policy, movability: words, excluded, external, digs, algorithms: rank::algorithms(policy) }
    }

    /// Claims of the same group.
    fn siblings(&self, claim: &Claim) -> &[&'a Claim] {
        self.digs.get(&claim.dig.id).map_or(&[], Vec::as_slice)
    }
}
