//! Who may push statistics of a policy and ask about it: service accounts of the policy's namespace, and accounts that are trusted for all.
//!
//! A caller sends a token of its pod, made for [`AUDIENCE`], so that the token is useless elsewhere. The API server says whose token it is;
//! the answer is cached, so that statistics are still accepted while the API server is unavailable.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::target::{CallError, within};

/// Audience of the callers' tokens.
pub const AUDIENCE: &str = "drover-autoscaler";
/// How long the API server's answer about a valid token is cached.
const COUNTS: Duration = Duration::from_secs(600);
/// How long a refused token is not sent to the API server again.
const REFUSED: Duration = Duration::from_secs(10);
/// Maximum number of cached tokens.
const MOST: usize = 20_000;
/// Maximum number of concurrent token reviews.
const AT_ONCE: usize = 8;
/// Maximum length of a token in bytes; longer ones are refused without a review.
const LONGEST: usize = 8 << 10;

/// Why a caller is refused.
#[derive(Debug, thiserror::Error)]
pub enum CallerRefused {
    /// There is no token, or the API server does not know it.
    #[error(
        "{0}; send `Authorization: Bearer <token>` with a service account's token for the audience {AUDIENCE}: pods have it from a projected \
         volume, `kubectl create token ACCOUNT --audience {AUDIENCE}` makes one by hand"
    )]
    Unknown(&'static str),
    /// The caller's account is in another namespace.
    #[error(
        "{account} may not push or read statistics of policies in {namespace}: use an account of that namespace, or start the agent with --trust {account}"
    )]
    WrongNamespace {
        /// The account of the token, as NAMESPACE/NAME.
        account: String,
        /// Of the policy.
        namespace: String,
    },
    /// The API server could not be asked.
    #[error("the token could not be checked: {0}; try again in a moment")]
    Unavailable(String),
}

/// SHA-256 of a token: tokens themselves are not kept.
type TokenDigest = [u8; 32];

fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token).into()
}

/// Identifies callers by their tokens.
pub struct Callers {
    client: Client,
    trusted: Vec<String>,
    /// By the digest of a token: when the cache entry expires, and the account (NAMESPACE/NAME) if the token is valid.
    known: Mutex<HashMap<TokenDigest, (Instant, Option<String>)>>,
    asking: Semaphore,
}

impl Callers {
    /// Accounts (NAMESPACE/NAME) in `trusted` may push for all namespaces.
    pub fn new(client: Client, trusted: Vec<String>) -> Self {
        Self { client, trusted, known: Mutex::default(), asking: Semaphore::new(AT_ONCE) }
    }

    /// Checks whether a caller may push for policies of a namespace.
    ///
    /// # Errors
    /// If it may not, or the API server could not be asked.
    pub async fn admit(&self, headers: &HeaderMap, namespace: &str) -> Result<(), CallerRefused> {
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer ")).map(str::trim);
        let token = token.filter(|token| !token.is_empty() && token.len() <= LONGEST).ok_or(CallerRefused::Unknown("there is no token"))?;
        let account = match self.remembered(token) {
            Some(account) => account,
            None => self.ask(token).await?,
        };
        let account = account.ok_or(CallerRefused::Unknown("the token is not valid"))?;
        let own = account.split_once('/').is_some_and(|(own, _)| own == namespace);
        if own || self.trusted.contains(&account) {
            Ok(())
        } else {
            Err(CallerRefused::WrongNamespace { account, namespace: namespace.to_owned() })
        }
    }

    async fn ask(&self, token: &str) -> Result<Option<String>, CallerRefused> {
        // While this call waited, another one may have asked about the same token.
        let _turn = self.asking.acquire().await.map_err(|error| CallerRefused::Unavailable(error.to_string()))?;
        if let Some(account) = self.remembered(token) {
            return Ok(account);
        }
        let spec = TokenReviewSpec { audiences: Some(vec![AUDIENCE.to_owned()]), token: Some(token.to_owned()) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = within(api.create(&PostParams::default(), &review)).await;
        let review = answer.map_err(|trouble: CallError| CallerRefused::Unavailable(trouble.to_string()))?;
        let account = review.status.as_ref().and_then(account);
        let now = Instant::now();
        let until = now + if account.is_some() { COUNTS } else { REFUSED };
        let mut known = self.known();
        if known.len() >= MOST {
            known.retain(|_, (until, _)| *until > now);
        }
        if known.len() < MOST {
            known.insert(digest(token), (until, account.clone()));
        }
        Ok(account)
    }

    fn remembered(&self, token: &str) -> Option<Option<String>> {
        self.known().get(&digest(token)).filter(|(until, _)| *until > Instant::now()).map(|(_, account)| account.clone())
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<TokenDigest, (Instant, Option<String>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service account of a token, if the token is valid and was made for [`AUDIENCE`].
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
    fn account_requires_a_valid_service_account_token_for_the_audience() {
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
        // An API server without support for audiences returns none.
        assert_eq!(account(&TokenReviewStatus { audiences: None, ..status(true, AUDIENCE, ours) }), None);
    }
}
