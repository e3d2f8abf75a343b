//! Labels of clusters.

use drover_store::{StoreError, StoreResult};
use sqlx::PgConnection;
use uuid::Uuid;

/// The labels of a cluster, sorted.
///
/// # Errors
/// The store fails.
pub async fn of(db: &mut PgConnection, cluster: Uuid) -> StoreResult<Vec<String>> {
    Ok(sqlx::query_scalar("select label from cluster_label where cluster_id = $1 order by label").bind(cluster).fetch_all(db).await?)
}

/// Adds a label.
///
/// # Errors
/// A violation of `cluster_label_pkey` if the cluster has the label already, or the store fails.
pub async fn add(db: &mut PgConnection, cluster: Uuid, label: &str) -> Result<(), StoreError> {
    sqlx::query("insert into cluster_label (cluster_id, label) values ($1, $2)").bind(cluster).bind(label).execute(db).await?;
    Ok(())
}

/// Removes a label; false if the cluster did not have it.
///
/// # Errors
/// The store fails.
pub async fn remove(db: &mut PgConnection, cluster: Uuid, label: &str) -> StoreResult<bool> {
    let done = sqlx::query("delete from cluster_label where cluster_id = $1 and label = $2").bind(cluster).bind(label).execute(db).await?;
    Ok(done.rows_affected() > 0)
}
