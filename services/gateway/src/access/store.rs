//! Tokens, role bindings and the audit log in the database.

use std::time::Duration;

use drover_api::access::{AuditEntry, Role, RoleBinding, RoleGrant, Token, TokenOrder};
use drover_service::principal::User;
use drover_service::{Identity, Principal, Problem, codes};
use drover_store::{MigrationSet, Store, StoreConfig, StoreError, StoreResult, Timestamp};
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row};
use uuid::Uuid;

/// What the secret of every token begins with, so that scanners of sources find one that was left somewhere.
pub const PREFIX: &str = "drover_";

/// Connects to the gateway's schema.
///
/// # Errors
/// The database is unavailable, or a migration fails.
pub async fn connect(url: SecretString) -> StoreResult<Store> {
    let config = StoreConfig::new("gateway", url);
    Store::connect(&config, &[MigrationSet::new("gateway", sqlx::migrate!("../../migrations/gateway"))]).await
}

/// What is stored of a token's secret.
pub fn digest(secret: &str) -> Vec<u8> {
    Sha256::digest(secret.as_bytes()).to_vec()
}

fn role(row: &PgRow) -> Result<Role, sqlx::Error> {
    let text: String = row.try_get("role")?;
    text.parse().map_err(|error: String| sqlx::Error::Decode(error.into()))
}

fn time(row: &PgRow, column: &str) -> Result<Option<String>, sqlx::Error> {
    Ok(row.try_get::<Option<Timestamp>, _>(column)?.map(|at| at.to_string()))
}

struct TokenRow(Token);

impl FromRow<'_, PgRow> for TokenRow {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self(Token {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            role: role(row)?,
            projects: row.try_get("projects")?,
            created_by: row.try_get("created_by")?,
            created_at: time(row, "created_at")?.unwrap_or_default(),
            expires_at: time(row, "expires_at")?,
        }))
    }
}

impl From<TokenRow> for Principal {
    fn from(TokenRow(token): TokenRow) -> Self {
        let grants = vec![RoleGrant { role: token.role, projects: token.projects }];
        Self { name: token.name, identity: Identity::Token(token.id), grants }
    }
}

macro_rules! valid_tokens {
    ($rest:literal) => {
        concat!(
            "select id, name, role, projects, created_by, created_at, expires_at,
                 extract(epoch from expires_at - now())::float8 as left_seconds from token
             where revoked_at is null and (expires_at is null or expires_at > now()) ",
            $rest
        )
    };
}

/// Whose secret has this digest, and how long it is valid still; none: for ever.
pub async fn token_of_digest(db: &Store, digest: &[u8]) -> StoreResult<Option<(Principal, Option<Duration>)>> {
    let Some(row) = sqlx::query(valid_tokens!("and digest = $1")).bind(digest).fetch_optional(&mut *db.acquire().await?).await? else {
        return Ok(None);
    };
    let left: Option<f64> = row.try_get("left_seconds")?;
    Ok(Some((TokenRow::from_row(&row)?.into(), left.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default()))))
}

/// The token of a session.
pub async fn token_of_id(db: &Store, id: Uuid) -> StoreResult<Option<Principal>> {
    let found: Option<TokenRow> = sqlx::query_as(valid_tokens!("and id = $1")).bind(id).fetch_optional(&mut *db.acquire().await?).await?;
    Ok(found.map(Into::into))
}

/// Tokens that are valid, by name.
pub async fn tokens(db: &Store) -> StoreResult<Vec<Token>> {
    let rows: Vec<TokenRow> = sqlx::query_as(valid_tokens!("order by name")).fetch_all(&mut *db.acquire().await?).await?;
    Ok(rows.into_iter().map(|TokenRow(token)| token).collect())
}

/// Stores a token. A token of the same name that has expired makes place.
pub async fn keep_token(db: &Store, order: &TokenOrder, secret: &str, by: &str) -> Result<Token, Problem> {
    let mut tx = db.begin().await?;
    let ended = "update token set revoked_at = expires_at where name = $1 and revoked_at is null and expires_at <= now()";
    sqlx::query(ended).bind(&order.name).execute(&mut *tx).await.map_err(StoreError::from)?;
    let insert = "insert into token (id, name, digest, role, projects, created_by, expires_at)
        values ($1, $2, $3, $4, $5, $6, now() + make_interval(secs => $7))
        returning id, name, role, projects, created_by, created_at, expires_at";
    let kept: Result<TokenRow, _> = sqlx::query_as(insert)
        .bind(Uuid::now_v7())
        .bind(&order.name)
        .bind(digest(secret))
        .bind(order.role.name())
        .bind(&order.projects)
        .bind(by)
        .bind(order.expires_in_seconds.map(f64::from))
        .fetch_one(&mut *tx)
        .await;
    let TokenRow(token) = kept.map_err(StoreError::from).map_err(|error| match error.constraint() {
        Some("token_name") => name_is_taken(&order.name),
        _ => error.into(),
    })?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(token)
}

/// The problem of a token whose name another one has.
pub fn name_is_taken(name: &str) -> Problem {
    codes::ALREADY_EXISTS.problem(format!("There is a token {name} already; revoke it first, or take another name"))
}

/// Revokes a token; false if there is none.
pub async fn revoke_token(db: &Store, name: &str) -> StoreResult<bool> {
    let revoked = sqlx::query("update token set revoked_at = now() where name = $1 and revoked_at is null")
        .bind(name)
        .execute(&mut *db.acquire().await?)
        .await?;
    Ok(revoked.rows_affected() > 0)
}

struct BindingRow(RoleBinding);

impl FromRow<'_, PgRow> for BindingRow {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let (name, subject, projects) = (row.try_get("name")?, row.try_get("subject")?, row.try_get("projects")?);
        Ok(Self(RoleBinding { name, subject, role: role(row)?, projects }))
    }
}

/// What a user of the identity provider may do.
pub async fn grants_of_user(db: &Store, user: &User) -> StoreResult<Vec<RoleGrant>> {
    let mut subjects = vec![format!("user:{}", user.subject)];
    subjects.extend(user.email.iter().map(|email| format!("user:{email}")));
    subjects.extend(user.groups.iter().map(|group| format!("group:{group}")));
    let query = "select name, subject, role, projects from role_binding where subject = any($1)";
    let rows: Vec<BindingRow> = sqlx::query_as(query).bind(subjects).fetch_all(&mut *db.acquire().await?).await?;
    Ok(rows.into_iter().map(|BindingRow(binding)| RoleGrant { role: binding.role, projects: binding.projects }).collect())
}

/// Role bindings, by name.
pub async fn bindings(db: &Store) -> StoreResult<Vec<RoleBinding>> {
    let rows: Vec<BindingRow> =
        sqlx::query_as("select name, subject, role, projects from role_binding order by name").fetch_all(&mut *db.acquire().await?).await?;
    Ok(rows.into_iter().map(|BindingRow(binding)| binding).collect())
}

/// Stores or replaces a role binding.
pub async fn keep_binding(db: &Store, binding: &RoleBinding, by: &str) -> StoreResult<()> {
    let upsert = "insert into role_binding (name, subject, role, projects, created_by) values ($1, $2, $3, $4, $5)
        on conflict (name) do update set subject = excluded.subject, role = excluded.role, projects = excluded.projects,
            created_by = excluded.created_by, created_at = now()";
    let query = sqlx::query(upsert).bind(&binding.name).bind(&binding.subject).bind(binding.role.name());
    query.bind(&binding.projects).bind(by).execute(&mut *db.acquire().await?).await?;
    Ok(())
}

/// Removes a role binding; false if there is none.
pub async fn remove_binding(db: &Store, name: &str) -> StoreResult<bool> {
    Ok(sqlx::query("delete from role_binding where name = $1").bind(name).execute(&mut *db.acquire().await?).await?.rows_affected() > 0)
}

/// Records a request before it is passed on; returns the number of the entry and its time. It survives the end of any process of Drover;
/// the commit does not wait for the disk, so a crash of the database server can lose the last half second.
pub async fn record(db: &Store, entry: &AuditEntry) -> StoreResult<(i64, String)> {
    let insert = "insert into audit (who, via, method, path, project, address, trace, request)
        select $1, $2, $3, $4, $5, $6, $7, $8 from set_config('synchronous_commit', 'off', true) returning id, at";
    let query = sqlx::query_as(insert).bind(&entry.who).bind(&entry.via).bind(&entry.method).bind(&entry.path);
    let query = query.bind(&entry.project).bind(&entry.from).bind(&entry.trace).bind(&entry.request);
    let (id, at): (i64, Timestamp) = query.fetch_one(&mut *db.acquire().await?).await?;
    Ok((id, at.to_string()))
}

/// Records how a request was answered.
pub async fn record_outcome(db: &Store, id: i64, status: u16, code: Option<&str>) -> StoreResult<()> {
    let insert = "insert into audit_outcome (audit, status, code) select $1, $2, $3 from set_config('synchronous_commit', 'off', true)";
    sqlx::query(insert).bind(id).bind(status.cast_signed()).bind(code).execute(&mut *db.acquire().await?).await?;
    Ok(())
}

struct AuditRow(AuditEntry);

impl FromRow<'_, PgRow> for AuditRow {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self(AuditEntry {
            id: row.try_get("id")?,
            at: time(row, "at")?.unwrap_or_default(),
            who: row.try_get("who")?,
            via: row.try_get("via")?,
            method: row.try_get("method")?,
            path: row.try_get("path")?,
            project: row.try_get("project")?,
            from: row.try_get("address")?,
            trace: row.try_get("trace")?,
            request: row.try_get("request")?,
            status: row.try_get::<Option<i16>, _>("status")?.map(i16::cast_unsigned),
            code: row.try_get("code")?,
        }))
    }
}

/// Which entries of the audit log to list.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub limit: i64,
    /// Only entries before this one.
    pub before: Option<i64>,
    pub who: Option<String>,
    pub project: Option<String>,
}

/// Entries of the audit log, newest first.
pub async fn entries(db: &Store, filter: &AuditFilter) -> StoreResult<Vec<AuditEntry>> {
    let query = "select id, audit.at, who, via, method, path, project, address, trace, request, status, code
        from audit left join audit_outcome on audit = id
        where ($1::bigint is null or id < $1) and ($2::text is null or who = $2) and ($3::text is null or project = $3)
        order by id desc limit $4";
    let query = sqlx::query_as(query).bind(filter.before).bind(&filter.who).bind(&filter.project).bind(filter.limit);
    let rows: Vec<AuditRow> = query.fetch_all(&mut *db.acquire().await?).await?;
    Ok(rows.into_iter().map(|AuditRow(entry)| entry).collect())
}
