//! Signing a browser in: a link that works once, made for whoever has a token, becomes a session of that token; a user whom the identity
//! provider sends back becomes a session of that user.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use drover_service::{Identity, Json, LINK_LIFETIME, Principal, Problem, Query, Sessions, codes};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::oidc::Provider;

/// What signing in needs; cheap to clone.
#[derive(Clone)]
pub struct SignIn {
    pub sessions: Sessions,
    pub provider: Option<Provider>,
    /// Whether this gateway has TLS: its cookies are then never sent without.
    pub secure: bool,
}

/// Binds a sign-in at the identity provider to the browser that began it.
const COOKIE: &str = "drover_sign_in";

/// A link that signs one browser in, once.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoginLink {
    /// Path and query, to be opened at the address of this gateway.
    path: String,
    /// Seconds for which it can be used.
    expires_in_seconds: u64,
}

/// Routes of signing in.
pub fn routes() -> OpenApiRouter<SignIn> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .route("/login", axum::routing::get(login))
        .route("/login/oidc", axum::routing::get(leave))
        .route("/login/oidc/callback", axum::routing::get(come_back))
}

/// Make a link that signs one browser in, as whoever makes it. It works once.
#[utoipa::path(post, path = "/v2/login-links", operation_id = "login_link_create", tag = "access",
    responses((status = 201, description = "The link", body = LoginLink)))]
async fn create(State(sign_in): State<SignIn>, Extension(principal): Extension<Principal>) -> Response {
    let path = format!("/login?key={}", sign_in.sessions.link(principal.identity));
    let link = LoginLink { path, expires_in_seconds: LINK_LIFETIME.as_secs() };
    (StatusCode::CREATED, [(header::CACHE_CONTROL, NO_STORE)], Json(link)).into_response()
}

#[derive(Deserialize)]
struct Login {
    key: String,
}

async fn login(State(sign_in): State<SignIn>, Query(login): Query<Login>) -> Result<Response, Problem> {
    let cookie = sign_in.sessions.sign_in(&login.key);
    let cookie =
        cookie.ok_or_else(|| codes::UNAUTHORIZED.problem("This link has been used or has expired; `drover page` prints another"))?;
    Ok(signed_in([cookie], sign_in.secure))
}

/// Sends the browser to the identity provider.
async fn leave(State(sign_in): State<SignIn>) -> Result<Response, Problem> {
    let (to, state) = provider(&sign_in)?.begin().await?;
    // Lax: the provider sends the browser back from another site.
    let cookie = format!("{COOKIE}={state}; Path=/login; Max-Age=600; HttpOnly; SameSite=Lax");
    let location = HeaderValue::from_str(to.as_str()).map_err(Problem::internal)?;
    let cookie = self::cookie(HeaderValue::from_str(&cookie).map_err(Problem::internal)?, sign_in.secure);
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, location), (header::SET_COOKIE, cookie), (header::CACHE_CONTROL, NO_STORE)])
        .into_response())
}

#[derive(Deserialize)]
struct Back {
    state: String,
    code: Option<String>,
    error: Option<String>,
}

/// The identity provider sends the browser here.
async fn come_back(State(sign_in): State<SignIn>, headers: HeaderMap, Query(back): Query<Back>) -> Result<Response, Problem> {
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    // Else another site could sign this browser in as somebody else.
    if !pairs.any(|(name, value)| name == COOKIE && value == back.state) {
        return Err(codes::UNAUTHORIZED.problem("This browser has not begun to sign in here, or too long ago. Begin again at /login/oidc"));
    }
    let Some(code) = back.code else {
        let error: String = back.error.unwrap_or_default().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(40).collect();
        return Err(codes::UNAUTHORIZED.problem(format!("The identity provider let nobody in: {error}. Begin again at /login/oidc")));
    };
    let user = provider(&sign_in)?.finish(&back.state, &code).await?;
    let session = sign_in.sessions.begin(Identity::User(Arc::new(user))).ok_or_else(|| Problem::internal("a cookie that is no text"))?;
    let over = HeaderValue::from_static("drover_sign_in=; Path=/login; Max-Age=0; HttpOnly; SameSite=Lax");
    Ok(signed_in([session, over], sign_in.secure))
}

fn provider(sign_in: &SignIn) -> Result<&Provider, Problem> {
    let provider = sign_in.provider.as_ref();
    provider.ok_or_else(|| {
        codes::NOT_FOUND.problem("No identity provider is set (--oidc-issuer); `drover page` prints a link that signs a browser in")
    })
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The cookie, which is never sent without TLS where `secure` says so.
fn cookie(value: HeaderValue, secure: bool) -> HeaderValue {
    if !secure {
        return value;
    }
    HeaderValue::from_bytes(&[value.as_bytes(), b"; Secure"].concat()).unwrap_or(value)
}

fn signed_in(cookies: impl IntoIterator<Item = HeaderValue>, secure: bool) -> Response {
    // Not a redirect: a browser that followed a link on another site would request its target without the new cookie.
    let page =
        r#"<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>Drover</title><a href="/">Drover</a>"#;
    let mut answer = ([(header::CACHE_CONTROL, NO_STORE)], Html(page)).into_response();
    for value in cookies {
        answer.headers_mut().append(header::SET_COOKIE, cookie(value, secure));
    }
    answer
}
