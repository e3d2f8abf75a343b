//! Signing a browser in: a link that works once, made for whoever has the token, becomes a session.

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use drover_service::{Json, LINK_LIFETIME, Problem, Query, Sessions, codes};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

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
pub fn routes<S: Clone + Send + Sync + 'static>(sessions: &Sessions) -> OpenApiRouter<S> {
    OpenApiRouter::new().routes(routes!(create)).route("/login", axum::routing::get(login)).with_state(sessions.clone())
}

/// Make a link that signs one browser in. It works once.
#[utoipa::path(post, path = "/v2/login-links", operation_id = "login_link_create", tag = "gateway",
    responses((status = 201, description = "The link", body = LoginLink)))]
async fn create(State(sessions): State<Sessions>) -> (StatusCode, Json<LoginLink>) {
    let path = format!("/login?key={}", sessions.link());
    (StatusCode::CREATED, Json(LoginLink { path, expires_in_seconds: LINK_LIFETIME.as_secs() }))
}

#[derive(Deserialize)]
struct Login {
    key: String,
}

async fn login(State(sessions): State<Sessions>, Query(login): Query<Login>) -> Result<Response, Problem> {
    let cookie = sessions.sign_in(&login.key);
    let cookie =
        cookie.ok_or_else(|| codes::UNAUTHORIZED.problem("This link has been used or has expired; `drover page` prints another"))?;
    // Not a redirect: a browser that followed a link on another site would request its target without the new cookie.
    let page =
        r#"<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>Drover</title><a href="/">Drover</a>"#;
    Ok(([(header::SET_COOKIE, cookie), (header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"))], Html(page)).into_response())
}
