//! Links: invitations and the keys of agents. Every statement may be repeated.

use drover_store::{StoreResult, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

/// A link as it is stored.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Row {
    pub cluster_id: Uuid,
    pub token_expires_at: Option<Timestamp>,
    pub asking: Option<String>,
    pub keys: Vec<String>,
    pub accepted_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub certificate_until: Option<Timestamp>,
    /// Whether there is an invitation, used or not.
    pub invited: bool,
}

macro_rules! rows {
    ($rest:literal) => {
        concat!(
            "select cluster_id, token_expires_at, asking, keys, accepted_at, revoked_at, certificate_until,
                token is not null as invited from link ",
            $rest
        )
    };
}

/// The link of a cluster.
///
/// # Errors
/// The store fails.
pub async fn get(db: &mut PgConnection, cluster: Uuid) -> StoreResult<Option<Row>> {
    Ok(sqlx::query_as(rows!("where cluster_id = $1")).bind(cluster).fetch_optional(db).await?)
}

/// Stores an invitation in the place of an earlier one. An agent that was accepted stays accepted.
///
/// # Errors
/// A violation of `link_cluster_id_fkey` if the cluster has just been deleted, or the store fails.
pub async fn invite(db: &mut PgConnection, cluster: Uuid, token: &[u8], hours: u32) -> StoreResult<Timestamp> {
    Ok(sqlx::query_scalar(
        "insert into link (cluster_id, token, token_expires_at) values ($1, $2, now() + make_interval(hours => $3))
        on conflict (cluster_id) do update set token = excluded.token, token_expires_at = excluded.token_expires_at, asking = null
        returning token_expires_at",
    )
    .bind(cluster)
    .bind(token)
    .bind(i32::try_from(hours).unwrap_or(i32::MAX))
    .fetch_one(db)
    .await?)
}

/// The link that has this invitation, locked until the end of the transaction.
///
/// # Errors
/// The store fails.
pub async fn invited(db: &mut PgConnection, token: &[u8]) -> StoreResult<Option<Row>> {
    Ok(sqlx::query_as(rows!("where token = $1 for update")).bind(token).fetch_optional(db).await?)
}

/// Records which key has shown the token.
///
/// # Errors
/// The store fails.
pub async fn ask(db: &mut PgConnection, cluster: Uuid, key: &str) -> StoreResult<()> {
    sqlx::query("update link set asking = $2 where cluster_id = $1").bind(cluster).bind(key).execute(db).await?;
    Ok(())
}

/// Lets the key that asks connect, and no other one; none if another key asks, or nobody.
///
/// # Errors
/// The store fails.
pub async fn accept(db: &mut PgConnection, cluster: Uuid, key: &str) -> StoreResult<Option<Row>> {
    let done = sqlx::query(
        "update link set keys = array[$2], generation = generation + 1, accepted_at = now(), revoked_at = null
        where cluster_id = $1 and asking = $2 and keys <> array[$2]",
    );
    done.bind(cluster).bind(key).execute(&mut *db).await?;
    Ok(sqlx::query_as(rows!("where cluster_id = $1 and asking = $2 and keys = array[$2]"))
        .bind(cluster)
        .bind(key)
        .fetch_optional(db)
        .await?)
}

/// Takes every access back, also that of who has an invitation.
///
/// # Errors
/// The store fails.
pub async fn revoke(db: &mut PgConnection, cluster: Uuid) -> StoreResult<()> {
    sqlx::query(
        "update link set token = null, asking = null, keys = '{}', generation = generation + 1, revoked_at = now(),
            certificate_until = null
        where cluster_id = $1",
    )
    .bind(cluster)
    .execute(db)
    .await?;
    Ok(())
}

/// Lets a key follow one that may connect; false if that one may not.
///
/// # Errors
/// The store fails.
pub async fn follow(db: &mut PgConnection, cluster: Uuid, present: &str, next: &str) -> StoreResult<bool> {
    let done =
        sqlx::query("update link set keys = case when $2 = $3 then keys else array[$2, $3] end where cluster_id = $1 and $2 = any(keys)");
    Ok(done.bind(cluster).bind(present).bind(next).execute(db).await?.rows_affected() > 0)
}

/// Records until when a certificate that was issued is valid.
///
/// # Errors
/// The store fails.
pub async fn issued(db: &mut PgConnection, cluster: Uuid, until: Timestamp) -> StoreResult<()> {
    sqlx::query("update link set certificate_until = $2 where cluster_id = $1").bind(cluster).bind(until).execute(db).await?;
    Ok(())
}

/// The agent with this key has connected: it has its certificate, so its invitation and earlier keys have served their purpose. Returns the
/// generation; none if the key may not connect.
///
/// # Errors
/// The store fails.
pub async fn connected(db: &mut PgConnection, cluster: Uuid, key: &str) -> StoreResult<Option<i64>> {
    Ok(sqlx::query_scalar(
        "update link set keys = case when keys[array_upper(keys, 1)] = $2 then array[$2] else keys end,
            token = case when asking = $2 then null else token end, asking = case when asking = $2 then null else asking end
        where cluster_id = $1 and $2 = any(keys) returning generation",
    )
    .bind(cluster)
    .bind(key)
    .fetch_optional(db)
    .await?)
}

/// The generations of these links; a link that is gone has none.
///
/// # Errors
/// The store fails.
pub async fn generations(db: &mut PgConnection, clusters: &[Uuid]) -> StoreResult<Vec<(Uuid, i64)>> {
    Ok(sqlx::query_as("select cluster_id, generation from link where cluster_id = any($1)").bind(clusters).fetch_all(db).await?)
}
