//! Clusters that are closed to new copies of apps.

use drover_scheduling::Cordon;
use drover_store::{StoreResult, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

/// Closes a cluster. One that is closed already keeps its time; a reason that is not empty replaces the stored one, and a cluster that
/// was given up stays so.
///
/// # Errors
/// A violation of `cordon_cluster_id_fkey` if the cluster has just been deleted, or the store fails.
pub async fn put(db: &mut PgConnection, cluster: Uuid, reason: &str, abandoned: bool) -> StoreResult<Cordon> {
    let (since, reason): (Timestamp, String) = sqlx::query_as(
        "insert into cordon (cluster_id, reason, abandoned) values ($1, $2, $3)
        on conflict (cluster_id) do update
            set reason = coalesce(nullif(excluded.reason, ''), cordon.reason), abandoned = cordon.abandoned or excluded.abandoned
        returning since, reason",
    )
    .bind(cluster)
    .bind(reason)
    .bind(abandoned)
    .fetch_one(db)
    .await?;
    Ok(Cordon { since: since.to_string(), reason })
}

/// Whether a cluster is given up, so that it may be deleted with the claims on it.
///
/// # Errors
/// The store fails.
pub async fn is_abandoned(db: &mut PgConnection, cluster: Uuid) -> StoreResult<bool> {
    Ok(sqlx::query_scalar("select exists (select from cordon where cluster_id = $1 and abandoned)").bind(cluster).fetch_one(db).await?)
}

/// Opens a cluster; false if it was open.
///
/// # Errors
/// The store fails.
pub async fn remove(db: &mut PgConnection, cluster: Uuid) -> StoreResult<bool> {
    let done = sqlx::query("delete from cordon where cluster_id = $1").bind(cluster).execute(db).await?;
    Ok(done.rows_affected() > 0)
}
