//! Who may do what, and who did what: the gateway's own part of access.
//!
//! The guard of `drover_service` says who sends a request ([`Principal`]). [`rules`] says which role each route needs; [`authorize`] checks
//! it, limits the rate, has the request recorded ([`audit`]) and leaves out of the answer what the sender may not see ([`visible`]). Tokens and
//! role bindings are rows ([`store`]) that are read at each request, so that what is revoked ends at once; of tokens only the last second is
//! remembered ([`remembered`]).

mod audit;
mod authorize;
mod http;
mod limit;
mod owners;
mod remembered;
mod repeated;
pub mod rules;
mod store;
mod visible;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use async_trait::async_trait;
use drover_api::access::Role;
use drover_service::{Identities, Identity, Principal, Problem, codes};
use drover_store::Store;
use serde_json::Value;

pub use audit::{Audit, AuditSettings};
pub use authorize::authorize;
pub use http::routes;
pub use limit::{RateLimit, RateSettings};
pub use remembered::Remembered;
pub use rules::Shown;
pub use store::connect;
pub use visible::View;

use crate::oidc::Provider;
use crate::proxy::Services;

/// What deciding about a request needs; cheap to clone.
#[derive(Clone)]
pub struct Access(Arc<Parts>);

struct Parts {
    store: Option<Store>,
    remembered: Remembered,
    audit: Audit,
    limit: RateLimit,
    services: Services,
    /// All apps, and when they were read.
    apps: Mutex<Option<(Instant, Arc<Value>)>>,
}

impl Access {
    /// Without a store there are no tokens and role bindings, and the audit log is kept in its file only.
    pub fn new(store: Option<Store>, remembered: Remembered, audit: Audit, limit: RateLimit, services: Services) -> Self {
        Self(Arc::new(Parts { store, remembered, audit, limit, services, apps: Mutex::default() }))
    }

    fn store(&self) -> Result<&Store, Problem> {
        self.0.store.as_ref().ok_or_else(no_store)
    }
}

fn no_store() -> Problem {
    codes::STORE_UNAVAILABLE
        .problem("This gateway runs without a database: set DATABASE_URL to have tokens, role bindings and an audit log")
}

/// The tokens and users that this gateway knows; cheap to clone.
#[derive(Clone)]
pub struct Known {
    store: Option<Store>,
    remembered: Remembered,
    provider: Option<Provider>,
}

impl Known {
    /// Tokens in a store, users of a provider.
    pub fn new(store: Option<Store>, remembered: Remembered, provider: Option<Provider>) -> Self {
        Self { store, remembered, provider }
    }
}

#[async_trait]
impl Identities for Known {
    async fn of_secret(&self, secret: &str) -> Result<Option<Principal>, Problem> {
        if self.is_token(secret) {
            let Some(db) = &self.store else { return Ok(None) };
            return Ok(self.remembered.of_secret(db, secret).await?);
        }
        let Some(provider) = &self.provider else { return Ok(None) };
        match provider.of_id_token(secret).await? {
            Some(user) => self.of_identity(&Identity::User(Arc::new(user))).await,
            None => Ok(None),
        }
    }

    fn is_token(&self, secret: &str) -> bool {
        secret.starts_with(store::PREFIX)
    }

    async fn of_identity(&self, identity: &Identity) -> Result<Option<Principal>, Problem> {
        let Some(db) = &self.store else { return Ok(None) };
        match identity {
            Identity::Token(id) => Ok(store::token_of_id(db, *id).await?),
            Identity::User(user) => {
                let grants = store::grants_of_user(db, user).await?;
                let name = user.email.clone().unwrap_or_else(|| user.subject.clone());
                Ok(Some(Principal { name, identity: identity.clone(), grants }))
            }
            Identity::Anyone | Identity::ApiToken | Identity::Peer => Ok(None),
        }
    }
}

/// The problem of a sender whose roles do not suffice.
fn forbidden(principal: &Principal, role: Role, project: Option<&str>) -> Problem {
    let place = project.map_or_else(|| "for all projects".to_owned(), |project| format!("in the project {project}"));
    codes::FORBIDDEN.problem(format!(
        "This needs the role {role} {place}; {} does not have it. `drover whoami` lists the roles that you have",
        principal.name
    ))
}
