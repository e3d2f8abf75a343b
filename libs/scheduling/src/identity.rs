//! Keys of members and references to deployment intent groups.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// `<provider>+<cluster>`, EMCO's cluster id.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct MemberKey(pub String);

impl MemberKey {
    /// The key of `cluster` of `provider`.
    pub fn new(provider: &str, cluster: &str) -> Self {
        Self(format!("{provider}+{cluster}"))
    }
    /// The provider's name.
    pub fn provider(&self) -> &str {
        self.0.split_once('+').map_or("", |(provider, _)| provider)
    }
    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        self.0.split_once('+').map_or(&self.0, |(_, cluster)| cluster)
    }
}

/// So that maps can be asked with a borrowed key; a transparent string compares and hashes as the string does.
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

/// Which deployment intent group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DigRef {
    /// Its document's uuid.
    pub id: Uuid,
    /// Project.
    pub project: String,
    /// Composite app.
    pub composite_app: String,
    /// Version of the composite app.
    pub version: String,
    /// Name.
    pub name: String,
}

/// So that [`crate::Interner`] keeps each once.
impl AsRef<Self> for DigRef {
    fn as_ref(&self) -> &Self {
        self
    }
}
