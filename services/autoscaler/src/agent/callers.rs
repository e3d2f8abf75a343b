//! Who may push statistics of a policy and ask about it: service accounts of its namespace, and those that are trusted with all.
//!
//! A caller shows a token of its pod. Made for [`AUDIENCE`], it is of no use to whoever else gets hold of it. The API server says whose it is;
//! that counts for a while, so that statistics are taken while the API server is away.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::target::{Trouble, within};

/// For whom the tokens of callers are made.
pub const AUDIENCE: &str = "drover-autoscaler";
/// What the API server said of a token counts for so long.
const COUNTS: Duration = Duration::from_secs(600);
/// A token that it refused is not shown to it again for so long.
const REFUSED: Duration = Duration::from_secs(10);
/// Tokens that are remembered, and asked about at once.
const MOST: usize = 20_000;
const AT_ONCE: usize = 8;
/// A longer one is none.
const LONGEST: usize = 8 << 10;

/// Why a caller is not heard.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No token, or none that the API server knows.
    #[error(
        "{0}; send `Authorization: Bearer <token>` with a service account's token for the audience {AUDIENCE}: pods have it from a projected \
         volume, `kubectl create token ACCOUNT --audience {AUDIENCE}` makes one by hand"
    )]
    Unknown(&'static str),
    /// Its namespace is another one.
    #[error(
        "{account} may not speak for policies of {namespace}: use an account of that namespace, or start the agent with --trust {account}"
    )]
    Stranger {
        /// Whose token it is, as NAMESPACE/NAME.
        account: String,
        /// Of the policy.
        namespace: String,
    },
    /// The API server was not asked.
    #[error("whose token it is could not be asked: {0}; it is worth another try in a moment")]
    Unasked(String),
}

/// Knows callers by their tokens.
pub struct Callers {
    client: Client,
    trusted: Vec<String>,
    /// By token: until when it counts, and whose it is (NAMESPACE/NAME).
    known: Mutex<HashMap<String, (Instant, Option<String>)>>,
    asking: Semaphore,
}

impl Callers {
    /// Asks `client`; accounts (NAMESPACE/NAME) in `trusted` may speak for all.
    pub fn new(client: Client, trusted: Vec<String>) -> Self {
        Self { client, trusted, known: Mutex::default(), asking: Semaphore::new(AT_ONCE) }
    }

    /// Whether a caller may speak for policies of a namespace.
    ///
    /// # Errors
    /// It may not, or cannot be known now.
    pub async fn admit(&self, headers: &HeaderMap, namespace: &str) -> Result<(), Refused> {
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer ")).map(str::trim);
        let token = token.filter(|token| !token.is_empty() && token.len() <= LONGEST).ok_or(Refused::Unknown("there is no token"))?;
        let account = match self.remembered(token) {
            Some(account) => account,
            None => self.ask(token).await?,
        };
        let account = account.ok_or(Refused::Unknown("the token is not valid"))?;
        let own = account.split_once('/').is_some_and(|(own, _)| own == namespace);
        if own || self.trusted.contains(&account) { Ok(()) } else { Err(Refused::Stranger { account, namespace: namespace.to_owned() }) }
    }

    async fn ask(&self, token: &str) -> Result<Option<String>, Refused> {
        // One that waited may find that it was asked about meanwhile.
        let _turn = self.asking.acquire().await.map_err(|error| Refused::Unasked(error.to_string()))?;
        if let Some(account) = self.remembered(token) {
            return Ok(account);
        }
        let spec = TokenReviewSpec { audiences: Some(vec![AUDIENCE.to_owned()]), token: Some(token.to_owned()) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = within(api.create(&PostParams::default(), &review)).await;
        let review = answer.map_err(|trouble: Trouble| Refused::Unasked(trouble.to_string()))?;
        let account = review.status.as_ref().and_then(account);
        let now = Instant::now();
        let until = now + if account.is_some() { COUNTS } else { REFUSED };
        let mut known = self.known();
        if known.len() >= MOST {
            known.retain(|_, (until, _)| *until > now);
        }
        if known.len() < MOST {
            known.insert(token.to_owned(), (until, account.clone()));
        }
        Ok(account)
    }

    fn remembered(&self, token: &str) -> Option<Option<String>> {
        self.known().get(token).filter(|(until, _)| *until > Instant::now()).map(|(_, account)| account.clone())
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, Option<String>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service account of a token that was made for us.
fn account(status: &TokenReviewStatus) -> Option<String> {
    let ours = status.audiences.as_ref().is_some_and(|audiences| audiences.iter().any(|audience| audience == AUDIENCE));
    if status.authenticated != Some(true) || !ours {
        return None;
    }
    let (namespace, name) = status.user.as_ref()?.username.as_ref()?.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    Some(format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};

    use super::{AUDIENCE, account};

    #[test]
    fn only_a_valid_token_of_a_service_account_made_for_us_says_who_it_is() {
        let status = |valid: bool, audience: &str, name: &str| TokenReviewStatus {
            authenticated: Some(valid),
            audiences: Some(vec![audience.to_owned()]),
            user: Some(UserInfo { username: Some(name.to_owned()), ..UserInfo::default() }),
            ..TokenReviewStatus::default()
        };
        let ours = "system:serviceaccount:shop:cart";
        assert_eq!(account(&status(true, AUDIENCE, ours)).as_deref(), Some("shop/cart"));
        for refused in [status(false, AUDIENCE, ours), status(true, "https://kubernetes", ours), status(true, AUDIENCE, "admin")] {
            assert_eq!(account(&refused), None, "{refused:?}");
        }
        // An API server that knows nothing of audiences answers without any.
        assert_eq!(account(&TokenReviewStatus { audiences: None, ..status(true, AUDIENCE, ours) }), None);
    }
}
