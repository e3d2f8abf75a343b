//! Deciding: how many pods a workload should have, and why.
//!
//! Pure: a policy, limits, the state so far and one observation go in; a [`DecisionRecord`] and the next state come out.
//! No clock, no I/O; chance comes from a generator that is part of the state, so a decision can be repeated exactly.
//!
//! ```text
//! ScalingSpec ── Policy: Threshold | Kpa | QLearning      proposes, from what was read
//!      └──────── Limits: behaviours, bounds, pause, pin   one filter after all three
//!
//! (Policy, Limits, State, Observation) ──decide──▶ (DecisionRecord, State)
//! ```
//!
//! The invariant of every policy: what could not be read, or is too old, is never taken for a zero ([`Reading`]).

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
pub mod threshold;

pub use decide::{decide, limit_only};
pub use limits::{Behavior, Limits, LimitsState, Pause, PolicyType, Recommendation, ScaleEvent, ScalingPolicy, ScalingRules, SelectPolicy};
pub use quantity::{Milli, QuantityError};
pub use reading::Reading;
pub use record::{DecisionRecord, Reason, Steps};
pub use spec::{Mode, Policy, PolicyKind, ScalingSpec, SpecError, TargetRef};
pub use state::{Observation, PolicyState, STATE_VERSION, State};

/// A time or a duration in seconds; times have any origin, the same one for all that one policy sees.
pub type Seconds = f64;
