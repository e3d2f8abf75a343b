//! Settings: which policy, and the safety rules around it. Shares are of the node's capacity, durations are written in seconds.
//! The defaults are those of production; the experiment writes down where it differs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Lever;

/// A policy and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "policy", deny_unknown_fields)]
pub enum Policy {
    /// Touches nobody.
    None,
    /// The paper's rule: above an upper bound pause the containers that use least, a few per round; below a lower bound resume all.
    Paper(PaperSettings),
    /// Whoever's way to its limit fits into what is left may grow, the nearest to its limit first; the others wait.
    Bank(BankSettings),
    /// A container starts only when the demand expected of all fits; `bank` watches those that started.
    GateBank(GateBankSettings),
}

impl Policy {
    /// The name users type.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Paper(_) => "paper",
            Self::Bank(_) => "bank",
            Self::GateBank(_) => "gate-bank",
        }
    }

    /// The policy of that name with its default settings.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "paper" => Some(Self::Paper(PaperSettings::default())),
            "bank" => Some(Self::Bank(BankSettings::default())),
            "gate-bank" => Some(Self::GateBank(GateBankSettings::default())),
            _ => None,
        }
    }

    /// The settings of the bank, if it is part of the policy.
    pub fn bank(&self) -> Option<&BankSettings> {
        match self {
            Self::Bank(bank) | Self::GateBank(GateBankSettings { bank, .. }) => Some(bank),
            Self::None | Self::Paper(_) => None,
        }
    }

    /// The settings of the gate, if there is one.
    pub fn gate(&self) -> Option<&GateSettings> {
        match self {
            Self::GateBank(GateBankSettings { gate, .. }) => Some(gate),
            _ => None,
        }
    }
}

/// Settings of the paper's rule (its table 3 is not available; these are fitted, see the experiment).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PaperSettings {
    /// U: above this share it begins.
    pub upper: f64,
    /// L: below this share it ends.
    pub lower: f64,
    /// R: how many are paused per round.
    pub per_round: usize,
    /// T: time between rounds.
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
    /// This share is never lent: for the kernel's own.
    pub margin: f64,
    /// What a container can take until the guard has looked and acted again is kept back: this long at the fastest growth seen.
    #[serde(with = "crate::time::seconds")]
    pub reaction: Duration,
    /// For a container that stands still right now, only this share of it.
    pub still: f64,
    /// Containers without a limit, and those that may not be touched, are expected to grow this long at their present rate.
    #[serde(with = "crate::time::seconds")]
    pub horizon: Duration,
}

impl Default for BankSettings {
    fn default() -> Self {
        Self { margin: 0.01, reaction: Duration::from_secs(2), still: 0.5, horizon: Duration::from_secs(30) }
    }
}

/// Settings of the start gate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct GateSettings {
    /// Demand factor (mean use as a share of the limit) assumed before anything was seen.
    pub factor: f64,
    /// Its standard deviation, likewise.
    pub deviation: f64,
    /// How many standard deviations of the sum must fit.
    pub sigmas: f64,
    /// How many container-seconds the assumption weighs against what is seen.
    pub prior_weight: f64,
    /// What was seen this long ago counts half.
    #[serde(with = "crate::time::seconds")]
    pub half_life: Duration,
    /// A container counts as seen from this age on: the first allocations say little.
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

/// Settings of the gate and the bank behind it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct GateBankSettings {
    /// The gate.
    pub gate: GateSettings,
    /// The bank. It may lend more freely than alone: the gate keeps the mean demand within the node, so it only meets the swings.
    pub bank: BankSettings,
}

impl Default for GateBankSettings {
    fn default() -> Self {
        let bank = BankSettings { reaction: Duration::from_secs(1), still: 0.25, ..BankSettings::default() };
        Self { gate: GateSettings::default(), bank }
    }
}

/// Whether a policy may kill one container so that others live.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "allow", deny_unknown_fields)]
pub enum Sacrifices {
    /// Never.
    Never,
    /// Only when nobody can grow to its limit any more, the youngest only, and seldom.
    Governed {
        /// Time between two.
        #[serde(with = "crate::time::seconds")]
        every: Duration,
        /// At most so many in an hour.
        per_hour: usize,
    },
    /// As the policy says: the paper's rule as it was published. It can livelock.
    Unrestrained,
}

/// The safety rules around every policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Safety {
    /// A reading older than this is no reading (three polls).
    #[serde(with = "crate::time::seconds")]
    pub max_age: Duration,
    /// When the memory of the node was not seen for this long, everything held is let go.
    #[serde(with = "crate::time::seconds")]
    pub blind: Duration,
    /// The longest time a container is paused or under a lease at a stretch. Its probes may set a shorter one.
    #[serde(with = "crate::time::seconds")]
    pub max_pause: Duration,
    /// After a stretch that long it is left alone for this long.
    #[serde(with = "crate::time::seconds")]
    pub cooldown: Duration,
    /// The longest time a container is held at the gate.
    #[serde(with = "crate::time::seconds")]
    pub max_hold: Duration,
    /// So many eligible containers always run.
    pub keep_running: usize,
    /// Ways to stop a container, best first.
    pub levers: Vec<Lever>,
    /// Try `memory.high` first where there is one, and stop only who leaks through it.
    pub high_first: bool,
    /// More than this past its `memory.high`, in bytes, is a leak (the kernel counts in batches).
    pub leak_tolerance: u64,
    /// Who may be killed.
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
    /// No rule at all: the paper's agent as it was published, for comparison only.
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
