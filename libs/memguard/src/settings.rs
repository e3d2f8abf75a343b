//! Settings: which policy, and the safety rules around it. Shares refer to the node's capacity; durations are written in seconds. The
//! defaults are those of production; the experiment states where it differs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Lever;

/// A policy with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "policy", deny_unknown_fields)]
pub enum Policy {
    /// Holds no container.
    None,
    /// The paper's rule: above an upper bound it pauses the containers that use least, a few per round; below a lower bound it resumes
    /// all.
    Paper(PaperSettings),
    /// The bank: free memory is lent so that at least one container can always reach its limit and finish; containers whose growth does
    /// not fit are held.
    Bank(BankSettings),
    /// The start gate and the bank: a container starts only when the expected demand of all fits, and the bank watches those that
    /// started.
    GateBank(GateBankSettings),
}

impl Policy {
    /// The name of the policy on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Paper(_) => "paper",
            Self::Bank(_) => "bank",
            Self::GateBank(_) => "gate-bank",
        }
    }

    /// The policy of that name with its default settings; `None` if there is no such policy.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "paper" => Some(Self::Paper(PaperSettings::default())),
            "bank" => Some(Self::Bank(BankSettings::default())),
            "gate-bank" => Some(Self::GateBank(GateBankSettings::default())),
            _ => None,
        }
    }

    /// The settings of the bank; `None` if the policy has none.
    pub fn bank(&self) -> Option<&BankSettings> {
        match self {
            Self::Bank(bank) | Self::GateBank(GateBankSettings { bank, .. }) => Some(bank),
            Self::None | Self::Paper(_) => None,
        }
    }

    /// The settings of the start gate; `None` if the policy has none.
    pub fn gate(&self) -> Option<&GateSettings> {
        match self {
            Self::GateBank(GateBankSettings { gate, .. }) => Some(gate),
            _ => None,
        }
    }
}

/// Settings of the paper's rule. Its table 3 is not available, so the defaults are fitted (see docs/how-to/memory-guard.md).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PaperSettings {
    /// Upper bound U: above this share of the capacity the rule becomes active.
    pub upper: f64,
    /// Lower bound L: below this share of the capacity the rule resumes all.
    pub lower: f64,
    /// R: containers paused per round.
    pub per_round: usize,
    /// T: time between two rounds.
    #[serde(with = "crate::time::seconds")]
    pub round: Duration,
}

impl Default for PaperSettings {
    fn default() -> Self {
        Self { upper: 0.96, lower: 0.94, per_round: 6, round: Duration::from_secs(15) }
    }
}

/// Settings of the bank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct BankSettings {
    /// This share of the capacity is never lent; it is left for the kernel.
    pub margin: f64,
    /// For each container, what it can take within this time at its fastest observed growth is reserved: the time until the guard has
    /// observed and acted again.
    #[serde(with = "crate::time::seconds")]
    pub reaction: Duration,
    /// A container that does not grow at present is reserved only this share of that amount.
    pub still: f64,
    /// Containers without a limit, and containers that may not be held, are expected to grow this long at their present rate.
    #[serde(with = "crate::time::seconds")]
    pub horizon: Duration,
}

impl Default for BankSettings {
    fn default() -> Self {
        Self { margin: 0.01, reaction: Duration::from_secs(2), still: 0.5, horizon: Duration::from_secs(30) }
    }
}

/// Settings of the start gate. The demand factor is the working set as a share of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct GateSettings {
    /// Mean of the demand factor that is assumed before anything was observed.
    pub factor: f64,
    /// Standard deviation of the demand factor that is assumed before anything was observed.
    pub deviation: f64,
    /// How many standard deviations of the total demand must fit beside its mean.
    pub sigmas: f64,
    /// Weight of the assumption against observations, in container-seconds.
    pub prior_weight: f64,
    /// Observations of this age count half.
    #[serde(with = "crate::time::seconds")]
    pub half_life: Duration,
    /// A container is observed from this age on, because its first allocations say little.
    #[serde(with = "crate::time::seconds")]
    pub settle: Duration,
}

impl Default for GateSettings {
    fn default() -> Self {
        Self {
            factor: 0.7,
            deviation: 0.2,
            sigmas: 1.0,
            prior_weight: 300.0,
            half_life: Duration::from_secs(600),
            settle: Duration::from_secs(30),
        }
    }
}

/// Settings of the start gate and of the bank behind it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct GateBankSettings {
    pub gate: GateSettings,
    /// The bank behind the gate may lend more than alone: the gate keeps the mean demand within the node, so the bank only handles the
    /// variation.
    pub bank: BankSettings,
}

impl Default for GateBankSettings {
    fn default() -> Self {
        let bank = BankSettings { reaction: Duration::from_secs(1), still: 0.25, ..BankSettings::default() };
        Self { gate: GateSettings::default(), bank }
    }
}

/// Whether a policy may kill one container so that the others can continue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "allow", deny_unknown_fields)]
pub enum Sacrifices {
    Never,
    /// Only when no container can grow to its limit any more, only the youngest one, and seldom.
    Governed {
        /// Shortest time between two sacrifices.
        #[serde(with = "crate::time::seconds")]
        every: Duration,
        /// Most sacrifices per hour.
        per_hour: usize,
    },
    /// Whenever the policy proposes it: the paper's rule as it was published, which can livelock.
    Unrestrained,
}

/// The safety rules around every policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Safety {
    /// Readings older than this do not count (the agent allows at least three polls).
    #[serde(with = "crate::time::seconds")]
    pub max_age: Duration,
    /// When the memory of the node could not be read for this long, every container is released.
    #[serde(with = "crate::time::seconds")]
    pub blind: Duration,
    /// The longest time for which a container is paused or leased at a stretch. Its probe budget may be shorter.
    #[serde(with = "crate::time::seconds")]
    pub max_pause: Duration,
    /// After the longest stretch a container is not held again for this long.
    #[serde(with = "crate::time::seconds")]
    pub cooldown: Duration,
    /// The longest time for which a container is held at the start gate.
    #[serde(with = "crate::time::seconds")]
    pub max_hold: Duration,
    /// At least this many of the containers that may be held always run.
    pub keep_running: usize,
    /// Levers for a pause, the preferred one first.
    pub levers: Vec<Lever>,
    /// Prefer a `memory.high` lease where the node has it, and pause only containers that grow past it.
    pub high_first: bool,
    /// A container that uses this many bytes more than its `memory.high` has grown past its lease (the kernel counts in batches).
    pub leak_tolerance: u64,
    pub sacrifices: Sacrifices,
}

impl Default for Safety {
    fn default() -> Self {
        Self {
            max_age: Duration::from_millis(750),
            blind: Duration::from_secs(5),
            max_pause: Duration::from_secs(120),
            cooldown: Duration::from_secs(10),
            max_hold: Duration::from_secs(600),
            keep_running: 1,
            levers: vec![Lever::Freeze, Lever::Quota],
            high_first: true,
            leak_tolerance: 16 << 20,
            sacrifices: Sacrifices::Never,
        }
    }
}

impl Safety {
    /// No safety rule at all: the paper's agent as it was published, for comparison only.
    pub fn as_published() -> Self {
        let forever = Duration::from_secs(u64::from(u32::MAX));
        Self {
            max_age: Duration::from_secs(5),
            blind: forever,
            max_pause: forever,
            cooldown: Duration::ZERO,
            max_hold: forever,
            keep_running: 0,
            levers: vec![Lever::Quota],
            high_first: false,
            leak_tolerance: 0,
            sacrifices: Sacrifices::Unrestrained,
        }
    }
}
