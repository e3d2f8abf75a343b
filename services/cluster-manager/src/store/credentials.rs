//! Sealed kubeconfigs.

use drover_store::{Place, SealKey, Sealed, StoreResult};
use secrecy::{ExposeSecret, SecretString};
use sqlx::PgConnection;
use uuid::Uuid;

/// The table, column and row that a kubeconfig is sealed for; it cannot be unsealed for another.
fn place(row: &str) -> Place<'_> {
    Place { table: "credential", column: "sealed", row }
}

/// Stores a kubeconfig, or replaces it and raises its version.
///
/// # Errors
/// The store fails.
pub async fn put(db: &mut PgConnection, key: &SealKey, cluster: Uuid, kubeconfig: &str) -> StoreResult<()> {
    let sealed = key.seal(place(&cluster.to_string()), kubeconfig.as_bytes());
    sqlx::query(
        "insert into credential (cluster_id, sealed) values ($1, $2)
        on conflict (cluster_id) do update set sealed = excluded.sealed, version = nextval('credential_version'), rotated_at = now()",
    )
    .bind(cluster)
    .bind(sealed)
    .execute(db)
    .await?;
    Ok(())
}

/// Version and kubeconfig of a cluster, if it has one.
///
/// # Errors
/// The store fails, or the kubeconfig was sealed with another key.
pub async fn get(db: &mut PgConnection, key: &SealKey, cluster: Uuid) -> StoreResult<Option<(i64, SecretString)>> {
    let row: Option<(i64, Sealed)> =
        sqlx::query_as("select version, sealed from credential where cluster_id = $1").bind(cluster).fetch_optional(db).await?;
    let Some((version, sealed)) = row else { return Ok(None) };
    Ok(Some((version, key.open_text(place(&cluster.to_string()), &sealed)?)))
}

/// Seals again, with the current key, what an older key sealed; returns how many. Their versions stay: the kubeconfigs are the same.
///
/// # Errors
/// The store fails, or a kubeconfig was sealed with a key that is not in the key file.
pub async fn reseal(db: &mut PgConnection, key: &SealKey) -> StoreResult<usize> {
    let rows: Vec<(Uuid, Sealed)> = sqlx::query_as("select cluster_id, sealed from credential for update").fetch_all(&mut *db).await?;
    let mut count = 0;
    for (cluster, sealed) in rows.into_iter().filter(|(_, sealed)| key.is_stale(sealed)) {
        let row = cluster.to_string();
        let plain = key.open(place(&row), &sealed)?;
        let sealed = key.seal(place(&row), plain.expose_secret());
        sqlx::query("update credential set sealed = $2 where cluster_id = $1").bind(cluster).bind(sealed).execute(&mut *db).await?;
        count += 1;
    }
    Ok(count)
}
