//! Errors in HTTP answers: RFC 9457 with a stable code.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of an error (`application/problem+json`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemDocument {
    /// Address of the page about this code, relative to the server.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Meaning of the code in a few words.
    #[serde(default)]
    pub title: String,
    /// HTTP status code.
    #[serde(default)]
    pub status: u16,
    /// What happened in this case, and what to do next.
    #[serde(default)]
    pub detail: String,
    /// Stable code; docs/errors has a page for each.
    #[serde(default)]
    pub code: String,
    /// Id of the request, or path of the operation to watch or cancel (`/v2/operations/{id}`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Each single reason if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

impl ProblemDocument {
    /// Reads an error answer. If the body is no problem document (for example a page of a proxy), `detail` is the first 300 characters of it.
    pub fn read(status: u16, body: &[u8]) -> Self {
        let mut problem: Self = serde_json::from_slice(body)
            .unwrap_or_else(|_| Self { detail: String::from_utf8_lossy(body).chars().take(300).collect(), ..Self::default() });
        problem.status = status;
        problem
    }
}
