//! What came of reading one value: there, absent, or too old.
//!
//! Not here: how it is read (the agent's sources). The invariant: only [`Reading::fresh`] gives a number, and no default stands in for one.

use serde::{Deserialize, Serialize};

use crate::Seconds;

/// What came of reading one value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Reading<T> {
    /// It was read, and is young enough to decide by.
    Value(T),
    /// There is none: the source has no data, or could not be asked. Never a zero.
    Absent(String),
    /// There is one, too old to decide by.
    #[serde(rename_all = "camelCase")]
    Stale {
        /// What it was.
        value: T,
        /// How old it is, in seconds.
        age: Seconds,
    },
}

impl<T> Reading<T> {
    /// A value taken at `taken`, seen at `now`: stale when it is older than `limit` seconds.
    pub fn taken(value: T, taken: Seconds, now: Seconds, limit: Seconds) -> Self {
        let age = now - taken;
        if age > limit { Self::Stale { value, age } } else { Self::Value(value) }
    }

    /// The value if it may be decided by.
    pub fn fresh(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent(_) | Self::Stale { .. } => None,
        }
    }

    /// Why there is no value to decide by; none if there is one.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::Value(_) => None,
            Self::Absent(why) => Some(format!("absent: {why}")),
            Self::Stale { age, .. } => Some(format!("stale: {age:.0} s old")),
        }
    }

    /// The same reading of another kind of value.
    pub fn map<U>(self, into: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Value(value) => Reading::Value(into(value)),
            Self::Absent(why) => Reading::Absent(why),
            Self::Stale { value, age } => Reading::Stale { value: into(value), age },
        }
    }
}

impl<T> From<Option<T>> for Reading<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(|| Self::Absent("not read".to_owned()), Self::Value)
    }
}
