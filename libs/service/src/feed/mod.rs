//! Feeds: how a service follows another's state. A feed has the newest value per key and is read by long polling.
//!
//! `GET …?since=<instance>:<n>&wait=<seconds>` answers `{version, reset, items: [{key, value | null}]}`. A reader that is
//! new, or that followed another instance, gets everything with `reset: true`. The invariant: a reader that applies every answer in
//! order has, for each key, a value at least as new as the version it knows. A feed is not an event log: values that were replaced
//! between two reads are never seen. An answer has at most one page of items; [`FeedReader`] puts the pages together, because after a
//! reset only all pages together are the full state.

mod hub;
mod reader;

pub use hub::FeedHub;
pub use reader::{FeedBatch, FeedContact, FeedReader};

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The longest wait that a reader may ask for.
pub const MAX_WAIT_SECONDS: u64 = 30;

/// Query of a feed: the version that the reader has, and how long to wait.
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
    /// To be sent as `since` the next time: `<instance>:<n>`.
    pub version: String,
    /// The reader must forget everything it has before it applies the items.
    pub reset: bool,
    /// Another page is ready: the next request is answered at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The changes, oldest first.
    pub items: Vec<FeedItem<T>>,
}

/// The newest value of a key.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FeedItem<T> {
    pub key: String,
    /// The value; `null` if the key was removed.
    pub value: Option<T>,
}
