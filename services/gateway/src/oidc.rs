//! Users of an identity provider (OpenID Connect): a browser is sent there to sign in, and programs may send an ID token as bearer token.
//!
//! The provider says who somebody is and in which groups; what they may do is in role bindings. Signatures are checked with the keys that the
//! provider publishes, which are read again when a token names one that is not known.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use drover_service::principal::User;
use drover_service::{Problem, codes, config};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use rand::distr::{Alphanumeric, SampleString};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::Url;

/// Settings of the identity provider.
#[derive(Args, Clone, Debug, Default)]
pub struct OidcSettings {
    /// Issuer of users (OpenID Connect): their browsers are sent there to sign in
    #[arg(long = "oidc-issuer", env = "DROVER_OIDC_ISSUER", value_name = "URL", requires = "client_id")]
    pub issuer: Option<Url>,
    /// Name of Drover at the issuer
    #[arg(long = "oidc-client-id", env = "DROVER_OIDC_CLIENT_ID", value_name = "ID")]
    pub client_id: Option<String>,
    /// File with Drover's secret at the issuer
    #[arg(long = "oidc-client-secret-file", env = "DROVER_OIDC_CLIENT_SECRET_FILE", value_name = "FILE")]
    pub client_secret_file: Option<PathBuf>,
    /// Address of this gateway as browsers see it; the issuer must know <URL>/login/oidc/callback [default: http://<listen>]
    #[arg(long = "public-url", env = "DROVER_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<Url>,
    /// Claim with the groups of a user
    #[arg(long = "oidc-groups-claim", env = "DROVER_OIDC_GROUPS_CLAIM", default_value = "groups", value_name = "CLAIM")]
    pub groups_claim: String,
}

/// How long a browser may take to sign in at the provider.
const SIGN_IN_TIME: Duration = Duration::from_secs(600);
/// Sign-ins under way at most; the oldest is given up when there are more.
const MOST: usize = 1000;
/// After how long what the provider publishes is read again.
const PUBLISHED_FOR: Duration = Duration::from_secs(600);
/// How long it is still believed when the provider does not answer: its keys seldom change, and its users are at work.
const BELIEVED_FOR: Duration = Duration::from_secs(3600);
/// The least time between two requests for it, so that neither unknown keys nor a provider that is down make every request wait.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The identity provider; cheap to clone.
#[derive(Clone)]
pub struct Provider(Arc<Parts>);

struct Parts {
    issuer: Url,
    client_id: String,
    client_secret: Option<SecretString>,
    callback: Url,
    groups_claim: String,
    http: reqwest::Client,
    published: tokio::sync::Mutex<Memory>,
    under_way: Mutex<HashMap<String, SignIn>>,
}

/// What the provider has published, and when it was asked.
#[derive(Default)]
struct Memory {
    known: Option<(Instant, Arc<Published>)>,
    /// When the provider was asked without success, since its last answer.
    unanswered: Option<Instant>,
}

struct SignIn {
    began: Instant,
    nonce: String,
    /// Proves to the provider that whoever brings the code is who sent the browser there (PKCE).
    verifier: String,
}

struct Published {
    authorization_endpoint: Url,
    token_endpoint: Url,
    keys: JwkSet,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    #[serde(default)]
    nonce: Option<String>,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    email_verified: Option<bool>,
    #[serde(flatten)]
    others: HashMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

impl Provider {
    /// The provider of the settings, if they name one. It is asked only when a user comes.
    ///
    /// # Errors
    /// An address is not https, or the secret cannot be read.
    pub fn new(settings: &OidcSettings, listen: std::net::SocketAddr) -> anyhow::Result<Option<Self>> {
        let Some(issuer) = settings.issuer.clone() else { return Ok(None) };
        ensure!(is_private(&issuer), "--oidc-issuer must be an https address; http is allowed on loopback only");
        let client_id = settings.client_id.clone().context("--oidc-issuer needs --oidc-client-id")?;
        let client_secret = config::token(None, settings.client_secret_file.as_deref())?;
        let base = settings.public_url.clone().map_or_else(|| Url::parse(&format!("http://{listen}/")), Ok)?;
        let callback = Url::parse(&format!("{}/login/oidc/callback", base.as_str().trim_end_matches('/')))?;
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(3))
            .timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let parts = Parts {
            issuer,
            client_id,
            client_secret,
            callback,
            groups_claim: settings.groups_claim.clone(),
            http,
            published: tokio::sync::Mutex::default(),
            under_way: Mutex::default(),
        };
        Ok(Some(Self(Arc::new(parts))))
    }

    /// The user of an ID token that a program sends; none if it is not valid here.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn of_id_token(&self, token: &str) -> Result<Option<User>, Problem> {
        Ok(self.claims(token).await?.map(|claims| self.user(claims)))
    }

    /// Where to send a browser to sign in, and the state that its cookie must have when it comes back.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn begin(&self) -> Result<(Url, String), Problem> {
        let mut to = self.published(false).await?.authorization_endpoint.clone();
        let random = || Alphanumeric.sample_string(&mut rand::rng(), 48);
        let (state, sign_in) = (random(), SignIn { began: Instant::now(), nonce: random(), verifier: random() });
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(sign_in.verifier.as_bytes()));
        to.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.0.client_id)
            .append_pair("redirect_uri", self.0.callback.as_str())
            .append_pair("scope", "openid email profile groups")
            .append_pair("state", &state)
            .append_pair("nonce", &sign_in.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        let mut under_way = self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.retain(|_, sign_in| sign_in.began.elapsed() < SIGN_IN_TIME);
        if under_way.len() >= MOST
            && let Some(oldest) = under_way.iter().min_by_key(|(_, sign_in)| sign_in.began).map(|(state, _)| state.clone())
        {
            under_way.remove(&oldest);
        }
        under_way.insert(state.clone(), sign_in);
        Ok((to, state))
    }

    /// The user who comes back with a code.
    ///
    /// # Errors
    /// No such sign-in is under way, the provider refuses the code, or its answer is not valid.
    pub async fn finish(&self, state: &str, code: &str) -> Result<User, Problem> {
        let refused = |why: String| codes::UNAUTHORIZED.problem(format!("The sign-in failed: {why}. Begin again at /login/oidc"));
        let sign_in = self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(state);
        let sign_in = sign_in.filter(|sign_in| sign_in.began.elapsed() < SIGN_IN_TIME);
        let SignIn { nonce, verifier, .. } = sign_in.ok_or_else(|| refused("it took too long, or was not begun here".to_owned()))?;
        let published = self.published(false).await?;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", self.0.callback.as_str()),
            ("client_id", self.0.client_id.as_str()),
            ("code_verifier", verifier.as_str()),
        ];
        if let Some(secret) = &self.0.client_secret {
            form.push(("client_secret", secret.expose_secret()));
        }
        let answer = self.0.http.post(published.token_endpoint.clone()).form(&form).send().await.map_err(unavailable)?;
        if !answer.status().is_success() {
            tracing::warn!(status = %answer.status(), "the identity provider refuses a code");
            return Err(refused("the identity provider refuses the code".to_owned()));
        }
        let tokens: Tokens = answer.json().await.map_err(unavailable)?;
        let claims = self.claims(&tokens.id_token).await?.filter(|claims| claims.nonce.as_deref() == Some(nonce.as_str()));
        claims.map(|claims| self.user(claims)).ok_or_else(|| refused("the ID token is not valid".to_owned()))
    }

    fn user(&self, claims: Claims) -> User {
        let groups = claims.others.get(&self.0.groups_claim).and_then(|groups| groups.as_array());
        let groups = groups.into_iter().flatten().filter_map(|group| group.as_str().map(str::to_owned)).collect();
        let email = claims.email.filter(|_| claims.email_verified == Some(true));
        User { subject: claims.sub, email, groups }
    }

    /// The claims of a token that this provider made for us and that has not expired.
    async fn claims(&self, token: &str) -> Result<Option<Claims>, Problem> {
        let Ok(head) = jsonwebtoken::decode_header(token) else { return Ok(None) };
        // Asymmetric ones only: with the others, whoever knows what checks a token could make one.
        let allowed =
            [Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::ES256, Algorithm::ES384, Algorithm::PS256, Algorithm::EdDSA];
        if !allowed.contains(&head.alg) {
            return Ok(None);
        }
        for again in [false, true] {
            let published = self.published(again).await?;
            let key = match &head.kid {
                Some(kid) => published.keys.find(kid),
                None => published.keys.keys.first(),
            };
            let Some(key) = key else { continue };
            let Ok(key) = DecodingKey::from_jwk(key) else { return Ok(None) };
            let mut validation = Validation::new(head.alg);
            validation.set_audience(&[&self.0.client_id]);
            validation.set_issuer(&[self.0.issuer.as_str().trim_end_matches('/'), self.0.issuer.as_str()]);
            validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
            validation.validate_nbf = true;
            return Ok(jsonwebtoken::decode::<Claims>(token, &key, &validation).ok().map(|data| data.claims));
        }
        Ok(None)
    }

    /// What the provider publishes; `again`: not from memory, unless that was read just now.
    async fn published(&self, again: bool) -> Result<Arc<Published>, Problem> {
        let mut memory = self.0.published.lock().await;
        let fresh = if again { ASK_AGAIN_AFTER } else { PUBLISHED_FOR };
        if let Some((_, published)) = memory.known.as_ref().filter(|(read, _)| read.elapsed() < fresh) {
            return Ok(Arc::clone(published));
        }
        let mut failed = None;
        if memory.unanswered.is_none_or(|asked| asked.elapsed() >= ASK_AGAIN_AFTER) {
            // Noted before it is asked: who asks may give up waiting, and the next one must not begin to wait again.
            memory.unanswered = Some(Instant::now());
            match self.ask().await {
                Ok(published) => {
                    let published = Arc::new(published);
                    *memory = Memory { known: Some((Instant::now(), Arc::clone(&published))), unanswered: None };
                    return Ok(published);
                }
                Err(problem) => {
                    // Again: it may have taken longer than the pause to fail.
                    memory.unanswered = Some(Instant::now());
                    failed = Some(problem);
                }
            }
        }
        match &memory.known {
            Some((read, published)) if !again && read.elapsed() < BELIEVED_FOR => Ok(Arc::clone(published)),
            _ => Err(failed.unwrap_or_else(silent)),
        }
    }

    async fn ask(&self) -> Result<Published, Problem> {
        let issuer = self.0.issuer.as_str().trim_end_matches('/');
        let read = async |url: &str| self.0.http.get(url).send().await.and_then(reqwest::Response::error_for_status).map_err(unavailable);
        let discovery: Discovery = read(&format!("{issuer}/.well-known/openid-configuration")).await?.json().await.map_err(unavailable)?;
        let endpoint = |text: &str| Url::parse(text).ok().filter(is_private);
        let endpoints = (endpoint(&discovery.authorization_endpoint), endpoint(&discovery.token_endpoint), endpoint(&discovery.jwks_uri));
        let (Some(authorization_endpoint), Some(token_endpoint), Some(keys), true) =
            (endpoints.0, endpoints.1, endpoints.2, discovery.issuer.trim_end_matches('/') == issuer)
        else {
            tracing::error!(issuer, said = %discovery.issuer, "the identity provider describes another issuer, or addresses that are not https");
            return Err(codes::PEER_UNAVAILABLE.problem("The identity provider describes itself wrongly; the log has the details"));
        };
        let keys = read(keys.as_str()).await?.json().await.map_err(unavailable)?;
        Ok(Published { authorization_endpoint, token_endpoint, keys })
    }
}

/// Whether nobody on the way can read or change what is sent there.
fn is_private(url: &Url) -> bool {
    let loopback = match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && loopback)
}

fn unavailable(error: reqwest::Error) -> Problem {
    tracing::warn!(error = %drover_service::problem::chain(&error), "the identity provider does not answer");
    silent()
}

fn silent() -> Problem {
    codes::PEER_UNAVAILABLE.problem("The identity provider does not answer at the moment; try again")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn provider_that_does_not_answer_is_not_asked_for_every_user() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let router = axum::Router::new().fallback(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            std::future::ready(axum::http::StatusCode::SERVICE_UNAVAILABLE)
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let settings = OidcSettings {
            issuer: Some(format!("http://{address}").parse().unwrap()),
            client_id: Some("drover".to_owned()),
            groups_claim: "groups".to_owned(),
            ..OidcSettings::default()
        };
        let provider = Provider::new(&settings, address).unwrap().unwrap();
        for _ in 0..5 {
            assert_eq!(provider.begin().await.unwrap_err().code(), codes::PEER_UNAVAILABLE);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);

        // What was read before is believed meanwhile, but a key that is not in it is not.
        let known = Published {
            authorization_endpoint: "https://issuer.example/auth".parse().unwrap(),
            token_endpoint: "https://issuer.example/token".parse().unwrap(),
            keys: JwkSet { keys: Vec::new() },
        };
        let read = Instant::now().checked_sub(PUBLISHED_FOR).unwrap();
        provider.0.published.lock().await.known = Some((read, Arc::new(known)));
        assert_eq!(provider.begin().await.unwrap().0.host_str(), Some("issuer.example"));
        assert!(provider.published(true).await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        serving.abort();
    }
}
