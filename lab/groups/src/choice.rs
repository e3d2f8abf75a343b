//! A policy by the name that users write.

use crate::aco::Aco;
use crate::ddpg::Learned;
use crate::exact::Exact;
use crate::greedy::Greedy;
use crate::policy::Policy;
use crate::search::Search;

/// All names, the default first.
pub const POLICIES: [&str; 10] =
    ["cgs-search", "cgs-greedy", "affinity", "balanced", "spread", "binpack", "aco", "aco-groups", "exact", "cgs-ddpg"];

/// Why there is no such policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// No policy has this name.
    #[error("there is no policy {0:?}; there are {names}", names = POLICIES.join(", "))]
    Unknown(String),
    /// A learned policy without the switch.
    #[error(
        "cgs-ddpg is experimental: trained as its paper says it beats neither cgs-greedy nor the best fixed order of the nodes \
         on 4 of 5 seeds (docs/how-to/group-placement.md); use cgs-search, or say `experimental`"
    )]
    Experimental,
    /// A learned policy needs what it learned.
    #[error("cgs-ddpg needs a trained policy: `drover experiment groups --save-policy FILE` makes one")]
    Untrained,
}

/// What a policy may be given; the rest it ignores.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of those that choose at random.
    pub seed: u64,
    /// Of `cgs-search`; 50,000 are about 10 ms for 100 containers.
    pub moves: u64,
    /// Allows `cgs-ddpg`.
    pub experimental: bool,
    /// What `cgs-ddpg` learned.
    pub learned: Option<Learned>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { seed: 0, moves: 50_000, experimental: false, learned: None }
    }
}

/// The policy of this name.
///
/// # Errors
/// [`ChoiceError`] says what to do.
pub fn policy_named(name: &str, settings: &Settings) -> Result<Box<dyn Policy>, ChoiceError> {
    let seed = settings.seed;
    Ok(match name {
        "cgs-search" => Box::new(Search::moves(settings.moves, seed)),
        "cgs-greedy" => Box::new(Greedy::Groups),
        "affinity" => Box::new(Greedy::Affinity),
        "balanced" => Box::new(Greedy::Balanced),
        "spread" => Box::new(Greedy::Spread),
        "binpack" => Box::new(Greedy::Binpack),
        "aco" | "aco-groups" => Box::new(Aco { grouped: name == "aco-groups", seed }),
        // A product must not hang on a proof: what is found by then is returned.
        "exact" => Box::new(Exact { limit: 10_000_000, ..Exact::default() }),
        "cgs-ddpg" if !settings.experimental => return Err(ChoiceError::Experimental),
        "cgs-ddpg" => Box::new(settings.learned.clone().ok_or(ChoiceError::Untrained)?),
        _ => return Err(ChoiceError::Unknown(name.to_owned())),
    })
}
