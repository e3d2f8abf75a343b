//! Routes of tokens, role bindings and the audit log.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use drover_api::access::{AuditList, NewToken, Role, RoleBinding, RoleBindingList, TokenList, TokenOrder, WhoAmI};
use drover_service::{DryRun, Json, Path, Principal, Problem, Query, codes};
use http::{StatusCode, header};
use rand::distr::{Alphanumeric, SampleString};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Access;
use super::store::{self, AuditFilter, PREFIX};

/// Longest lifetime of a token in seconds: ten years.
const LONGEST: u32 = 10 * 365 * 24 * 3600;

/// The routes.
pub fn routes() -> OpenApiRouter<Access> {
    OpenApiRouter::new()
        .routes(routes!(whoami))
        .routes(routes!(token_create, token_list))
        .routes(routes!(token_revoke))
        .routes(routes!(binding_list))
        .routes(routes!(binding_put, binding_delete))
        .routes(routes!(audit_list))
}

/// Who the sender of the request is, and what it may do.
#[utoipa::path(get, path = "/v2/whoami", operation_id = "whoami", tag = "access", responses((status = 200, description = "Name and roles", body = WhoAmI)))]
async fn whoami(Extension(principal): Extension<Principal>) -> Json<WhoAmI> {
    Json(WhoAmI { name: principal.name, roles: principal.grants })
}

/// Make a token. The answer has its secret, which cannot be read again.
#[utoipa::path(post, path = "/v2/tokens", operation_id = "token_create", tag = "access", params(DryRun), request_body = TokenOrder,
    responses((status = 201, description = "The token", body = NewToken), (status = 200, description = "The order, which would be carried out (dry run)", body = TokenOrder)))]
async fn token_create(
    State(access): State<Access>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<DryRun>,
    Json(order): Json<TokenOrder>,
) -> Result<Response, Problem> {
    let dry = query.asked()?;
    name_is_valid(&order.name)?;
    scope_is_valid(order.role, order.projects.as_deref())?;
    if order.expires_in_seconds.is_some_and(|seconds| !(1..=LONGEST).contains(&seconds)) {
        return Err(codes::INVALID.problem(format!("Invalid Input: expiresInSeconds is 1 to {LONGEST}")));
    }
    if dry {
        return match store::tokens(access.store()?).await?.iter().any(|token| token.name == order.name) {
            true => Err(store::name_is_taken(&order.name)),
            false => Ok(Json(order).into_response()),
        };
    }
    // 285 random bits of the operating system.
    let token = format!("{PREFIX}{}", Alphanumeric.sample_string(&mut rand::rng(), 48));
    let about = store::keep_token(access.store()?, &order, &token, &principal.name).await?;
    let made = Json(NewToken { about, token });
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], made).into_response())
}

/// Tokens that are valid, without their secrets.
#[utoipa::path(get, path = "/v2/tokens", operation_id = "token_list", tag = "access", responses((status = 200, description = "By name", body = TokenList)))]
async fn token_list(State(access): State<Access>) -> Result<Json<TokenList>, Problem> {
    Ok(Json(TokenList { items: store::tokens(access.store()?).await? }))
}

/// Revoke a token. Its next request is refused, and its sessions have ended.
#[utoipa::path(delete, path = "/v2/tokens/{token}", operation_id = "token_revoke", tag = "access", params(("token" = String, Path, description = "Name of the token"), DryRun),
    responses((status = 204, description = "It is revoked")))]
async fn token_revoke(State(access): State<Access>, Path(name): Path<String>, Query(query): Query<DryRun>) -> Result<StatusCode, Problem> {
    let there = match query.asked()? {
        true => store::tokens(access.store()?).await?.iter().any(|token| token.name == name),
        false => {
            let revoked = store::revoke_token(access.store()?, &name).await?;
            access.0.remembered.forget();
            revoked
        }
    };
    match there {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(codes::NOT_FOUND.problem(format!("There is no token {name}"))),
    }
}

/// Roles of users of the identity provider.
#[utoipa::path(get, path = "/v2/role-bindings", operation_id = "role_binding_list", tag = "access",
    responses((status = 200, description = "By name", body = RoleBindingList)))]
async fn binding_list(State(access): State<Access>) -> Result<Json<RoleBindingList>, Problem> {
    Ok(Json(RoleBindingList { items: store::bindings(access.store()?).await? }))
}

/// Give a role to users of the identity provider.
#[utoipa::path(put, path = "/v2/role-bindings/{binding}", operation_id = "role_binding_put", tag = "access",
    params(("binding" = String, Path, description = "Name of the binding"), DryRun), request_body = RoleBinding,
    responses((status = 200, description = "As stored", body = RoleBinding)))]
async fn binding_put(
    State(access): State<Access>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    Query(query): Query<DryRun>,
    Json(binding): Json<RoleBinding>,
) -> Result<Json<RoleBinding>, Problem> {
    let dry = query.asked()?;
    if name != binding.name {
        return Err(codes::MISMATCHED_NAME.problem(format!("The body names {:?}, the path {name:?}", binding.name)));
    }
    name_is_valid(&binding.name)?;
    scope_is_valid(binding.role, binding.projects.as_deref())?;
    let subject = binding.subject.split_once(':').filter(|(kind, name)| matches!(*kind, "user" | "group") && !name.is_empty());
    if subject.is_none() || binding.subject.len() > 300 || binding.subject.contains('\0') {
        return Err(codes::INVALID.problem("Invalid Input: subject is `user:<e-mail address or subject>` or `group:<name>`"));
    }
    if !dry {
        store::keep_binding(access.store()?, &binding, &principal.name).await?;
    }
    Ok(Json(binding))
}

/// Remove a role binding. Its users lose the role at their next request.
#[utoipa::path(delete, path = "/v2/role-bindings/{binding}", operation_id = "role_binding_delete", tag = "access",
    params(("binding" = String, Path, description = "Name of the binding"), DryRun), responses((status = 204, description = "It is gone")))]
async fn binding_delete(
    State(access): State<Access>,
    Path(name): Path<String>,
    Query(query): Query<DryRun>,
) -> Result<StatusCode, Problem> {
    let there = match query.asked()? {
        true => store::bindings(access.store()?).await?.iter().any(|binding| binding.name == name),
        false => store::remove_binding(access.store()?, &name).await?,
    };
    match there {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(codes::NOT_FOUND.problem(format!("There is no role binding {name}"))),
    }
}

/// Query of the audit log.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Number of entries at most, 1 to 1000; 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// Only entries before this one: the last id of the previous page.
    before: Option<i64>,
    /// Only what this token or user did.
    who: Option<String>,
    /// Only what was done in this project.
    project: Option<String>,
}

/// Who did what: requests that could have changed something, and those that were refused, newest first.
#[utoipa::path(get, path = "/v2/audit", operation_id = "audit_list", tag = "access", params(AuditQuery),
    responses((status = 200, description = "A page of entries", body = AuditList)))]
async fn audit_list(State(access): State<Access>, Query(query): Query<AuditQuery>) -> Result<Json<AuditList>, Problem> {
    let limit = query.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(codes::INVALID.problem("limit must be 1 to 1000"));
    }
    let db = access.store()?;
    let text = |text: Option<String>| text.filter(|text| !text.contains('\0'));
    let filter = AuditFilter { limit: i64::from(limit), before: query.before, who: text(query.who), project: text(query.project) };
    Ok(Json(AuditList { items: store::entries(db, &filter).await? }))
}

fn name_is_valid(name: &str) -> Result<(), Problem> {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let valid = (1..=63).contains(&name.len()) && name.starts_with(letter) && name.chars().all(|c| letter(c) || matches!(c, '-' | '.'));
    // The words by which the audit log names those who have no name.
    if !valid || matches!(name, "api-token" | "peer" | "anyone") {
        return Err(codes::INVALID.problem(format!(
            "Invalid Input: the name {name:?} must be 1 to 63 lower-case letters, digits, `-` and `.`, and not api-token, peer or anyone"
        )));
    }
    Ok(())
}

fn scope_is_valid(role: Role, projects: Option<&[String]>) -> Result<(), Problem> {
    match projects {
        None => Ok(()),
        Some(_) if role == Role::Admin => Err(codes::INVALID.problem("Invalid Input: the role admin holds everywhere; leave projects out")),
        Some([]) => Err(codes::INVALID.problem("Invalid Input: projects is empty; name projects, or leave it out for all")),
        Some(names) if names.len() > 100 || names.iter().any(|name| name.is_empty() || name.len() > 128 || name.contains('\0')) => {
            Err(codes::INVALID.problem("Invalid Input: projects are 1 to 100 names of at most 128 bytes"))
        }
        Some(_) => Ok(()),
    }
}
