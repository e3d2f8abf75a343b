//! The result of reading one value: present, absent, or too old.
//!
//! How values are read is up to the caller (the agent's sources). The invariant: only [`Reading::fresh`] gives a number, and no default
//! replaces a missing one.

use serde::{Deserialize, Serialize};

use crate::Seconds;

/// The result of reading one value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Reading<T> {
    /// The value was read and is recent enough to decide on.
    Value(T),
    /// There is no value: the source has no data, or could not be reached. Never treated as zero.
    Absent(String),
    /// There is a value, but it is too old to decide on.
    #[serde(rename_all = "camelCase")]
    Stale {
        /// The value that was read.
        value: T,
        /// Age in seconds.
        age: Seconds,
    },
}

impl<T> Reading<T> {
    /// A value measured at `taken` and seen at `now`; it is stale if it is older than `limit` seconds.
    pub fn taken(value: T, taken: Seconds, now: Seconds, limit: Seconds) -> Self {
        let age = now - taken;
        if age > limit { Self::Stale { value, age } } else { Self::Value(value) }
    }

    /// The value, if it is recent enough to decide on.
    pub fn fresh(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent(_) | Self::Stale { .. } => None,
        }
    }

    /// Why there is no usable value; none if there is one.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::Value(_) => None,
            Self::Absent(why) => Some(format!("absent: {why}")),
            Self::Stale { age, .. } => Some(format!("stale: {age:.0} s old")),
        }
    }

    /// Converts the value, keeping whether it is absent or stale.
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
