//! Decides how many pods a workload should have, and says why.
//!
//! Pure: the inputs are a policy, limits, the state so far and one observation; the results are a [`DecisionRecord`] and the next state.
//! There is no clock and no I/O. Random choices come from a generator that is part of the state, so a decision can be repeated exactly.
//!
//! ```text
//! ScalingSpec ── Policy: Threshold | Kpa | QLearning      proposes replicas from what was read
//!      └──────── Limits: behaviours, bounds, pause, pin   one filter for all three policies
//!
//! (Policy, Limits, ScalingState, Observation) ──decide──▶ (DecisionRecord, ScalingState)
//! ```
//!
//! The invariant of every policy: a value that could not be read, or is too old, is never treated as zero ([`Reading`]).

mod carried;
mod decide;
mod limits;
mod quantity;
mod reading;
mod record;
mod spec;
mod state;

pub mod kpa;
pub mod offline;
pub mod qlearning;
pub mod shares;
pub mod threshold;
pub mod to_zero;

pub use carried::{Carried, Samples};
pub use decide::{decide, limit_only};
pub use limits::{Behavior, Limits, LimitsState, Pause, PolicyType, Recommendation, ScaleEvent, ScalingPolicy, ScalingRules, SelectPolicy};
pub use quantity::{Milli, QuantityError};
pub use reading::Reading;
pub use record::{DecisionRecord, Reason, Steps};
pub use spec::{Mode, Policy, PolicyKind, ScalingSpec, SpecError, TargetRef};
pub use state::{Observation, PolicyState, STATE_VERSION, ScalingState};

/// A time or a duration in seconds. Times may have any origin, as long as it is the same for everything that one policy sees.
pub type Seconds = f64;
