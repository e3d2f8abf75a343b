//! Sealed kubeconfigs.

use drover_store::{SealKey, Sealed, SealedTable, StoreResult};
use secrecy::SecretString;
use sqlx::PgConnection;
use uuid::Uuid;

/// Kubeconfigs by cluster. Sealing one again does not change its version: it is the same kubeconfig.
pub const SEALED: SealedTable = SealedTable::without_plain("credential", "cluster_id::text");

/// Stores a kubeconfig, or replaces it and raises its version.
///
/// # Errors
/// The store fails.
pub async fn put(db: &mut PgConnection, key: &SealKey, cluster: Uuid, kubeconfig: &str) -> StoreResult<()> {
    let sealed = key.seal(SEALED.place(&cluster.to_string()), kubeconfig.as_bytes());
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

/// The kubeconfig of a cluster.
pub struct Credential {
    pub version: i64,
    pub kubeconfig: SecretString,
    /// The cluster is reached through its link, and in no other way.
    pub linked: bool,
}

/// The kubeconfig of a cluster, if it has one.
///
/// # Errors
/// The store fails, or the kubeconfig was sealed with another key.
pub async fn get(db: &mut PgConnection, key: &SealKey, cluster: Uuid) -> StoreResult<Option<Credential>> {
    let row: Option<(i64, Sealed, bool)> = sqlx::query_as(
        "select credential.version, credential.sealed, coalesce((cluster.spec ->> 'link')::bool, false)
        from credential join resource cluster on cluster.id = credential.cluster_id where credential.cluster_id = $1",
    )
    .bind(cluster)
    .fetch_optional(db)
    .await?;
    let Some((version, sealed, linked)) = row else { return Ok(None) };
    let kubeconfig = key.open_text(SEALED.place(&cluster.to_string()), &sealed)?;
    Ok(Some(Credential { version, kubeconfig, linked }))
}
