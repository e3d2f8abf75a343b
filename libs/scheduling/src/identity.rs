//! Keys of members and references to deployment intent groups.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The key of a member: `<provider>+<cluster>`, as in EMCO.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct MemberKey(pub String);

impl MemberKey {
    /// Stands for every provider, or for every cluster of a provider, also those that are registered later.
    pub const EVERY: &str = "*";

    /// The key of `cluster` of `provider`.
    pub fn new(provider: &str, cluster: &str) -> Self {
        Self(format!("{provider}+{cluster}"))
    }
    /// Name of the provider.
    pub fn provider(&self) -> &str {
        self.0.split_once('+').map_or("", |(provider, _)| provider)
    }
    /// Name of the cluster.
    pub fn cluster(&self) -> &str {
        self.0.split_once('+').map_or(&self.0, |(_, cluster)| cluster)
    }
    /// Whether this is the key of `member`, or stands for it: `onprem+*` and `*+*` do for `onprem+a`.
    pub fn includes(&self, member: &Self) -> bool {
        let matches = |wanted: &str, found: &str| wanted == Self::EVERY || wanted == found;
        matches(self.provider(), member.provider()) && matches(self.cluster(), member.cluster())
    }
}

/// Allows lookups with `&str`: a transparent string is compared and hashed like the string.
impl Borrow<str> for MemberKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Project of Drover's own agents, whose groups have no documents. No project of users can have this name.
pub const AGENTS_PROJECT: &str = "drover:agents";

impl DigRef {
    /// Whether this is one of Drover's own agents, which belongs to its member and is never moved.
    pub fn is_agent(&self) -> bool {
        self.project == AGENTS_PROJECT
    }
}

/// Reference to a deployment intent group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DigRef {
    /// UUID of its document.
    pub id: Uuid,
    pub project: String,
    #[serde(alias = "composite_app")]
    pub composite_app: String,
    /// Version of the composite app.
    pub version: String,
    pub name: String,
}

/// Needed by [`crate::Interner`].
impl AsRef<Self> for DigRef {
    fn as_ref(&self) -> &Self {
        self
    }
}
