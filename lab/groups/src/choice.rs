//! The choice of a policy by its name.

use crate::aco::Aco;
use crate::ddpg::LearnedPolicy;
use crate::exact::Exact;
use crate::greedy::Greedy;
use crate::learned::Learned;
use crate::policy::Policy;
use crate::search::Search;
use drover_scheduling::groups::learned::LearnedModel;

/// The names of all policies, the default first.
pub const POLICIES: [&str; 11] =
    ["cgs-search", "cgs-greedy", "learned", "affinity", "balanced", "spread", "binpack", "aco", "aco-groups", "exact", "cgs-ddpg"];

/// Why a policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    #[error("there is no policy {0:?}; the policies are {names}", names = POLICIES.join(", "))]
    Unknown(String),
    /// A learned policy was named without allowing experimental ones.
    #[error(
        "cgs-ddpg is experimental: trained as its paper says it beats neither cgs-greedy nor the best fixed order of the nodes \
         on 4 of 5 seeds (docs/how-to/group-placement.md); use cgs-search, or allow experimental policies"
    )]
    Experimental,
    /// A learned policy was named without its training result.
    #[error(
        "cgs-ddpg needs a trained policy: `drover experiment groups --save-policy FILE` makes one, and `drover groups place --learned FILE` uses it"
    )]
    Untrained,
}

/// The settings of all policies. Each policy uses those that concern it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed of the policies that choose at random.
    pub seed: u64,
    /// Budget of `cgs-search` in moves; 50,000 take about 10 ms for 100 containers.
    pub moves: u64,
    /// Allows the experimental policy `cgs-ddpg`.
    pub experimental: bool,
    /// The trained policy for `cgs-ddpg`.
    pub learned: Option<LearnedPolicy>,
    /// The model for `learned`; `None`: the one that is shipped.
    pub model: Option<LearnedModel>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { seed: 0, moves: 50_000, experimental: false, learned: None, model: None }
    }
}

/// Makes the policy of this name.
///
/// # Errors
/// When there is no such policy, or when it lacks a setting that it needs.
pub fn policy_named(name: &str, settings: &Settings) -> Result<Box<dyn Policy>, ChoiceError> {
    let seed = settings.seed;
    Ok(match name {
        "cgs-search" => Box::new(Search::moves(settings.moves, seed)),
        "cgs-greedy" => Box::new(Greedy::Groups),
        "learned" => Box::new(Learned::new(settings.model.clone().unwrap_or_else(|| LearnedModel::shipped().clone()))),
        "affinity" => Box::new(Greedy::Affinity),
        "balanced" => Box::new(Greedy::Balanced),
        "spread" => Box::new(Greedy::Spread),
        "binpack" => Box::new(Greedy::Binpack),
        "aco" | "aco-groups" => Box::new(Aco { grouped: name == "aco-groups", seed }),
        // The number of tree nodes is limited so that this ends; the best placement found by then is returned.
        "exact" => Box::new(Exact { limit: 10_000_000, ..Exact::default() }),
        "cgs-ddpg" if !settings.experimental => return Err(ChoiceError::Experimental),
        "cgs-ddpg" => Box::new(settings.learned.clone().ok_or(ChoiceError::Untrained)?),
        _ => return Err(ChoiceError::Unknown(name.to_owned())),
    })
}
