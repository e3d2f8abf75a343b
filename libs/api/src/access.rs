//! Who may do what: roles, tokens, role bindings, and the audit log (gateway).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// What somebody may do. Each role may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read the documents and the state of its projects.
    Viewer,
    /// Deploy, update and delete applications; room is made only by moving apps of the same projects.
    Deployer,
    /// Also have apps of other projects moved, as far as their owners and the policy allow it.
    Mover,
    /// Also administer clusters, providers, projects, logical clouds and policies.
    Operator,
    /// Also administer tokens and role bindings, and read the audit log.
    Admin,
}

impl Role {
    /// Every role, the least first.
    pub const ALL: [Self; 5] = [Self::Viewer, Self::Deployer, Self::Mover, Self::Operator, Self::Admin];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Deployer => "deployer",
            Self::Mover => "mover",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| format!("{text:?} is no role; the roles are {}", names()))
    }
}

/// A role, and where it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleGrant {
    pub role: Role,
    /// The projects in which the role holds; absent: everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projects: Option<Vec<String>>,
}

/// Body of `POST /v2/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenOrder {
    /// Name by which the audit log knows who used it: 1 to 63 lower-case letters, digits, `-` and `.`.
    pub name: String,
    pub role: Role,
    /// The projects in which the role holds; absent: everywhere.
    #[serde(default)]
    pub projects: Option<Vec<String>>,
    /// After how many seconds it ends, at most ten years; absent: never.
    #[serde(default)]
    pub expires_in_seconds: Option<u32>,
}

/// A token, without the secret, which is known only to whoever made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    pub id: Uuid,
    pub name: String,
    pub role: Role,
    /// The projects in which the role holds; absent: everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projects: Option<Vec<String>>,
    /// Who made it.
    pub created_by: String,
    /// Time in RFC 3339.
    pub created_at: String,
    /// Time in RFC 3339; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// Answer of `POST /v2/tokens`: the only one that has the secret.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    #[serde(flatten)]
    pub about: Token,
    /// To be sent as `Authorization: Bearer <token>`. It cannot be read again.
    pub token: String,
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewToken({:?}, …)", self.about)
    }
}

/// Tokens that are valid, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    pub items: Vec<Token>,
}

/// A role that users of the identity provider (OIDC) have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleBinding {
    pub name: String,
    /// `user:<e-mail address or subject>` or `group:<name>`, as the identity provider says it.
    pub subject: String,
    pub role: Role,
    /// The projects in which the role holds; absent: everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projects: Option<Vec<String>>,
}

/// Role bindings, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleBindingList {
    pub items: Vec<RoleBinding>,
}

/// Answer of `GET /v2/whoami`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    pub name: String,
    /// What the sender of the request may do.
    pub roles: Vec<RoleGrant>,
}

/// An entry of the audit log: a request that could have changed something, or that was refused to somebody who is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    pub id: i64,
    /// Time in RFC 3339.
    pub at: String,
    /// Name of the token or the user.
    pub who: String,
    /// How the sender was known: `api-token`, `token`, `user`, `peer` or `anyone`.
    pub via: String,
    pub method: String,
    /// Path without query.
    pub path: String,
    /// The project that the path names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Address from which the request came.
    pub from: String,
    /// Trace id (W3C), as in logs and traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Id of the request, as in its answer (`x-request-id`), in problems and in logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// HTTP status of the answer; absent if the client had gone, or the gateway ended, before there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Error code of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// A page of the audit log, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    pub items: Vec<AuditEntry>,
}
