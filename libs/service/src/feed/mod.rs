//! The one shape in which a service follows another's state: newest version per key, long poll, plain JSON.
//!
//! `GET …?since=<instance>:<n>&wait=<seconds>` answers `{version, reset, items: [{key, value | null}]}`. A reader that is
//! new, or that followed another instance, gets everything with `reset: true`. The invariant: a reader that applies
//! every answer in order holds, for each key, a value at least as new as the version it knows. It is no event log:
//! values that were replaced in between are never seen. An answer has at most a page of items; [`FeedReader`] puts the
//! pages together, for after a reset only all of them are the whole.

mod hub;
mod reader;

pub use hub::FeedHub;
pub use reader::{FeedBatch, FeedContact, FeedReader};

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The longest a reader may ask to wait.
pub const MAX_WAIT_SECONDS: u64 = 30;

/// Where a reader stands and how long it waits.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FeedQuery {
    /// `version` of the last answer; absent: everything.
    pub since: Option<String>,
    /// Seconds to wait for something new, at most 30.
    #[serde(default)]
    pub wait: u64,
}

/// An answer of a feed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FeedPage<T> {
    /// Say this next time: `<instance>:<n>`.
    pub version: String,
    /// Forget everything before applying the items.
    pub reset: bool,
    /// There is more to know already: ask again, it answers at once. Only then are the items all there is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// What changed, oldest first.
    pub items: Vec<FeedItem<T>>,
}

/// The newest value of a key.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FeedItem<T> {
    /// Key.
    pub key: String,
    /// Value; `null`: gone.
    pub value: Option<T>,
}
