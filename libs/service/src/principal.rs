//! Who sends a request, and what roles the sender has.
//!
//! The guard of a service ([`crate::router`]) puts a [`Principal`] into the extensions of each request that it lets in. What each route
//! needs is decided by the gateway, which is the only service that knows users; the others serve the gateway and each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use drover_api::access::{Role, RoleGrant};
use uuid::Uuid;

use crate::Problem;

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Name of the token or the user, for the audit log and the history of revisions.
    pub name: String,
    pub identity: Identity,
    /// What it may do. Several grants add up.
    pub grants: Vec<RoleGrant>,
}

/// How the sender of a request was known. Kept in sessions, and looked up again at each request, so that what is revoked ends at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nobody: the service runs without authentication.
    Anyone,
    /// The API token of the configuration.
    ApiToken,
    /// Another service.
    Peer,
    /// A token that an admin made.
    Token(Uuid),
    /// A user of the identity provider.
    User(Arc<User>),
}

/// A user as the identity provider (OIDC) describes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub subject: String,
    /// Only if the provider says that it is verified.
    pub email: Option<String>,
    pub groups: Vec<String>,
}

impl Identity {
    /// The key by which limits per sender are counted; `None` for senders that share an identity, for whom they are not counted.
    pub fn key(&self) -> Option<String> {
        match self {
            Self::Token(id) => Some(id.to_string()),
            Self::User(user) => Some(format!("user {}", user.subject)),
            Self::Anyone | Self::ApiToken | Self::Peer => None,
        }
    }

    /// How the sender was identified, as the audit log names it.
    pub fn via(&self) -> &'static str {
        match self {
            Self::Anyone => "anyone",
            Self::ApiToken => "api-token",
            Self::Peer => "peer",
            Self::Token(_) => "token",
            Self::User(_) => "user",
        }
    }
}

impl Principal {
    /// Somebody who may do everything.
    pub(crate) fn all(identity: Identity) -> Self {
        Self { name: identity.via().to_owned(), identity, grants: vec![RoleGrant { role: Role::Admin, projects: None }] }
    }

    /// Whether it has the role in this project; without a project: everywhere.
    pub fn may(&self, role: Role, project: Option<&str>) -> bool {
        self.grants.iter().any(|grant| {
            let there = match (&grant.projects, project) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(projects), Some(project)) => projects.iter().any(|own| own == project),
            };
            there && grant.role >= role
        })
    }

    /// Whether it has the role in any project.
    pub fn may_somewhere(&self, role: Role) -> bool {
        self.grants.iter().any(|grant| grant.role >= role)
    }

    /// The projects of which it may see anything; `None`: all projects.
    pub fn projects(&self) -> Option<BTreeSet<&str>> {
        let each: Option<Vec<_>> = self.grants.iter().map(|grant| grant.projects.as_deref()).collect();
        Some(each?.into_iter().flatten().map(String::as_str).collect())
    }
}

/// Knows tokens and users. Only the gateway has one.
#[async_trait]
pub trait Identities: Send + Sync {
    /// Whose secret this is: that of a token, or a signed one of the identity provider.
    ///
    /// # Errors
    /// It cannot be found out at present.
    async fn of_secret(&self, secret: &str) -> Result<Option<Principal>, Problem>;

    /// Whether this has the form of a token of Drover, valid or not.
    fn is_token(&self, secret: &str) -> bool;

    /// What a session's owner may do now; none if that has ended.
    ///
    /// # Errors
    /// It cannot be found out at present.
    async fn of_identity(&self, identity: &Identity) -> Result<Option<Principal>, Problem>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(grants: &[(Role, Option<&[&str]>)]) -> Principal {
        let grant = |(role, projects): &(Role, Option<&[&str]>)| RoleGrant {
            role: *role,
            projects: projects.map(|projects| projects.iter().map(|name| (*name).to_owned()).collect()),
        };
        Principal { name: "x".into(), identity: Identity::Anyone, grants: grants.iter().map(grant).collect() }
    }

    #[test]
    fn roles_hold_in_their_projects_only() {
        let shop = principal(&[(Role::Deployer, Some(&["shop"])), (Role::Viewer, Some(&["blog"]))]);
        assert!(shop.may(Role::Deployer, Some("shop")) && shop.may(Role::Viewer, Some("shop")) && shop.may(Role::Viewer, Some("blog")));
        assert!(!shop.may(Role::Deployer, Some("blog")) && !shop.may(Role::Viewer, Some("other")) && !shop.may(Role::Mover, Some("shop")));
        assert!(!shop.may(Role::Viewer, None), "a role of some projects is none of all");
        assert!(shop.may_somewhere(Role::Deployer) && !shop.may_somewhere(Role::Mover));
        assert_eq!(shop.projects(), Some(["blog", "shop"].into()));

        let operator = principal(&[(Role::Operator, None), (Role::Viewer, Some(&["blog"]))]);
        assert!(operator.may(Role::Operator, None) && operator.may(Role::Mover, Some("blog")) && !operator.may(Role::Admin, None));
        assert_eq!(operator.projects(), None);
        let nobody = principal(&[]);
        assert!(!nobody.may_somewhere(Role::Viewer));
        assert_eq!(nobody.projects(), Some(BTreeSet::new()), "nobody sees nothing");
    }
}
