//! The input of planning, indexed: the ledger, the migration intents of the owners and the policy.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use uuid::Uuid;

use super::starting::StartingPods;
use crate::cel::Expression;
use crate::{Algorithm, AlgorithmUse, Claim, Ledger, Movability, Policy, RefusedDestination};

/// The input of planning.
pub(crate) struct PlanningContext<'a> {
    pub ledger: &'a Ledger,
    pub policy: &'a Policy,
    /// By deployment intent group and app, each app once. The group stands beside, because most comparisons need nothing else.
    movability: Vec<(Uuid, &'a Movability)>,
    pub excluded: &'a BTreeMap<Uuid, String>,
    pub refused: &'a [RefusedDestination],
    pub external: &'a BTreeMap<Uuid, BTreeMap<String, f64>>,
    /// Whether to look for fewer moves than those of the first plan that is found.
    pub fewest_moves: bool,
    /// Pods of operations under way that have no nodes yet.
    pub starting: StartingPods<'a>,
    /// The policy's algorithms in the order of application, compiled; `None` if a definition is missing or invalid.
    pub algorithms: Vec<(&'a AlgorithmUse, Option<(&'a Algorithm, Expression)>)>,
}

impl<'a> PlanningContext<'a> {
    pub fn new(
        ledger: &'a Ledger,
        movability: &'a [Movability],
        policy: &'a Policy,
        excluded: &'a BTreeMap<Uuid, String>,
        refused: &'a [RefusedDestination],
        external: &'a BTreeMap<Uuid, BTreeMap<String, f64>>,
    ) -> Self {
        // If an app has two entries, the stricter one counts: it is the first one in this order.
        let mut words: Vec<(Uuid, &Movability)> = movability.iter().map(|word| (word.dig, word)).collect();
        words.sort_by_key(|(dig, word)| (*dig, word.app.as_str(), word.migration, Reverse(word.priority)));
        words.dedup_by_key(|(dig, word)| (*dig, word.app.as_str()));
        let starting = StartingPods::of(ledger, excluded.keys());
        let algorithms = algorithms(policy);
        Self { ledger, policy, movability: words, excluded, refused, external, fewest_moves: false, starting, algorithms }
    }

    /// What the owner of an app has said about moves.
    pub fn movability(&self, claim: &Claim) -> Option<&'a Movability> {
        let order = |(dig, word): &(Uuid, &Movability)| dig.cmp(&claim.dig.id).then_with(|| word.app.cmp(&claim.request.app));
        self.movability.binary_search_by(order).ok().map(|at| self.movability[at].1)
    }

    /// The destinations at which an app recently did not become Ready.
    pub fn refused(&self, claim: &Claim) -> impl Iterator<Item = &'a RefusedDestination> {
        self.refused.iter().filter(move |refused| refused.dig == claim.dig.id && refused.app == claim.request.app)
    }

    /// The claims of the same deployment intent group, with `claim` itself, sorted by id.
    pub fn siblings(&self, claim: &Claim) -> Vec<&'a Claim> {
        self.ledger.claims_of_group(claim.dig.id).collect()
    }
}

/// Sorts and compiles the policy's algorithms.
fn algorithms(policy: &Policy) -> Vec<(&AlgorithmUse, Option<(&Algorithm, Expression)>)> {
    let mut uses: Vec<(u32, &AlgorithmUse)> =
        policy.algorithms.iter().enumerate().map(|(i, u)| (u.priority.unwrap_or(i as u32 + 1), u)).collect();
    uses.sort_by_key(|(priority, _)| *priority);
    let compiled = |used: &AlgorithmUse| {
        let definition = policy.definitions.get(&used.algorithm)?;
        Some((definition, Expression::compile(&definition.expression).ok()?))
    };
    uses.into_iter().map(|(_, used)| (used, compiled(used))).collect()
}
