//! Errors as they travel: RFC 9457 with a stable code.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of an error (`application/problem+json`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemDocument {
    /// Where the page about this code is, relative to the server.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// What the code means, in a few words.
    #[serde(default)]
    pub title: String,
    /// HTTP status.
    #[serde(default)]
    pub status: u16,
    /// What happened this time.
    #[serde(default)]
    pub detail: String,
    /// Stable code, a page in docs/errors.
    #[serde(default)]
    pub code: String,
    /// Request id, or the operation to watch or cancel (`/v2/operations/{id}`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Each single reason, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

impl ProblemDocument {
    /// What an error answer says. One that is no problem (a proxy's page, say) has its first words as the detail.
    pub fn read(status: u16, body: &[u8]) -> Self {
        let mut problem: Self = serde_json::from_slice(body)
            .unwrap_or_else(|_| Self { detail: String::from_utf8_lossy(body).chars().take(300).collect(), ..Self::default() });
        problem.status = status;
        problem
    }
}
