//! The histories of logical clouds: which verb was carried out when.

use drover_store::{StoreResult, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

use super::deployment::DeploymentState;

/// An entry in the history of a logical cloud.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct CloudAction {
    /// The state that the verb led to, as in the database.
    pub state: String,
    pub at: Timestamp,
}

/// The history of a logical cloud, oldest first.
///
/// # Errors
/// The query failed.
pub async fn of_cloud(tx: &mut PgConnection, cloud: Uuid) -> StoreResult<Vec<CloudAction>> {
    Ok(sqlx::query_as("select state, at from logical_cloud_action where cloud_id = $1 order by seq").bind(cloud).fetch_all(tx).await?)
}

/// Adds an entry.
///
/// # Errors
/// The query failed.
pub async fn add(tx: &mut PgConnection, cloud: Uuid, state: DeploymentState) -> StoreResult<()> {
    sqlx::query("insert into logical_cloud_action (cloud_id, state) values ($1, $2)").bind(cloud).bind(state.as_str()).execute(tx).await?;
    Ok(())
}

/// Deletes the history of a logical cloud.
///
/// # Errors
/// The query failed.
pub async fn delete(tx: &mut PgConnection, cloud: Uuid) -> StoreResult<()> {
    sqlx::query("delete from logical_cloud_action where cloud_id = $1").bind(cloud).execute(tx).await?;
    Ok(())
}
