//! Users of members with their sealed keys and certificates.

use drover_store::{SealKey, Sealed, SealedTable, StoreError, StoreResult, Timestamp};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

/// Key and certificate of a user, in PEM. There is no debug output of them.
#[derive(Clone, Serialize, Deserialize)]
pub struct Pems {
    pub key: String,
    pub certificate: String,
}

/// A user of a member.
#[derive(Clone)]
pub struct MemberUser {
    pub user_name: String,
    pub namespace: String,
    pub pems: Pems,
    /// From when until when the certificate is valid.
    pub validity: (Timestamp, Timestamp),
}

#[derive(sqlx::FromRow)]
struct Row {
    user_name: String,
    namespace: String,
    sealed: Sealed,
    starts_at: Timestamp,
    expires_at: Timestamp,
}

/// Keys and certificates by user.
pub const SEALED: SealedTable = SealedTable::without_plain("member_user", "id::text");

/// Stores a user, or replaces it.
///
/// # Errors
/// The store fails.
pub async fn put(db: &mut PgConnection, key: &SealKey, cluster: Uuid, id: Uuid, user: &MemberUser) -> StoreResult<()> {
    let plain = serde_json::to_vec(&user.pems).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let sealed = key.seal(SEALED.place(&id.to_string()), &plain);
    sqlx::query(
        "insert into member_user (id, cluster_id, user_name, namespace, sealed, starts_at, expires_at) values ($1, $2, $3, $4, $5, $6, $7)
        on conflict (id) do update set user_name = excluded.user_name, namespace = excluded.namespace, sealed = excluded.sealed,
            starts_at = excluded.starts_at, expires_at = excluded.expires_at",
    )
    .bind(id)
    .bind(cluster)
    .bind(&user.user_name)
    .bind(&user.namespace)
    .bind(sealed)
    .bind(user.validity.0)
    .bind(user.validity.1)
    .execute(db)
    .await?;
    Ok(())
}

/// The user of this id in this cluster.
///
/// # Errors
/// The store fails, or the key was sealed with another key.
pub async fn get(db: &mut PgConnection, key: &SealKey, cluster: Uuid, id: Uuid) -> StoreResult<Option<MemberUser>> {
    let sql = "select user_name, namespace, sealed, starts_at, expires_at from member_user where id = $1 and cluster_id = $2";
    let row: Option<Row> = sqlx::query_as(sql).bind(id).bind(cluster).fetch_optional(db).await?;
    let Some(Row { user_name, namespace, sealed, starts_at, expires_at }) = row else { return Ok(None) };
    let plain = key.open(SEALED.place(&id.to_string()), &sealed)?;
    let pems = serde_json::from_slice(plain.expose_secret()).map_err(|error| StoreError::from(sqlx::Error::Decode(error.into())))?;
    Ok(Some(MemberUser { user_name, namespace, pems, validity: (starts_at, expires_at) }))
}

/// Deletes a user.
///
/// # Errors
/// The store fails.
pub async fn delete(db: &mut PgConnection, id: Uuid) -> StoreResult<()> {
    sqlx::query("delete from member_user where id = $1").bind(id).execute(db).await?;
    Ok(())
}
