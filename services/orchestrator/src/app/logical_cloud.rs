//! Logical clouds at level 0. Nothing has to be created in the clusters, so instantiating one only changes its state.

use drover_resources::{TypedDocument, by_id, get};
use drover_store::{StoreResult, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Error;
use crate::resources::logical_cloud::LogicalCloudSpec;
use crate::resources::{DIG, LOGICAL_CLOUD};
use crate::store::deployment::DeploymentState;

/// An entry in the history of a logical cloud.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct LogicalCloudAction {
    pub state: String,
    pub at: Timestamp,
}

/// The logical cloud at this path.
///
/// # Errors
/// There is no such logical cloud, or a query failed.
pub async fn at(tx: &mut PgConnection, path: &str) -> Result<TypedDocument<LogicalCloudSpec>, Error> {
    get(tx, &LOGICAL_CLOUD, path).await?.ok_or_else(|| Error::NotFound { what: format!("logical cloud {path}") })
}

/// The history of a logical cloud, oldest first.
///
/// # Errors
/// The query failed.
pub async fn actions(tx: &mut PgConnection, cloud: Uuid) -> StoreResult<Vec<LogicalCloudAction>> {
    Ok(sqlx::query_as("select state, at from logical_cloud_action where cloud_id = $1 order by seq").bind(cloud).fetch_all(tx).await?)
}

async fn record(tx: &mut PgConnection, cloud: Uuid, state: DeploymentState) -> StoreResult<()> {
    sqlx::query("insert into logical_cloud_action (cloud_id, state) values ($1, $2)").bind(cloud).bind(state.as_str()).execute(tx).await?;
    Ok(())
}

/// Marks a logical cloud as instantiated.
///
/// # Errors
/// A query failed.
pub async fn instantiate(tx: &mut PgConnection, cloud: Uuid) -> Result<(), Error> {
    if state(&mut *tx, cloud).await? != DeploymentState::Instantiated {
        record(tx, cloud, DeploymentState::Instantiated).await?;
    }
    Ok(())
}

/// Marks a logical cloud as terminated.
///
/// # Errors
/// A deployment intent group runs in it, or a query failed.
pub async fn terminate(tx: &mut PgConnection, cloud: Uuid) -> Result<(), Error> {
    let found: Option<TypedDocument<LogicalCloudSpec>> = by_id(&mut *tx, &LOGICAL_CLOUD, cloud).await?;
    let path = found.map(|cloud| cloud.path).unwrap_or_default();
    let sql = "select dig.path from resource dig join resource_reference on from_id = dig.id join deployment on dig_id = dig.id
        where to_id = $1 and dig.kind = $2 and deployment.state = 'Instantiated' order by dig.path limit 1";
    let used: Option<String> = sqlx::query_scalar(sql).bind(cloud).bind(DIG.name).fetch_optional(&mut *tx).await?;
    if let Some(used) = used {
        return Err(Error::NotNow(format!("{used} runs in the logical cloud {path}; terminate it first")));
    }
    if state(&mut *tx, cloud).await? == DeploymentState::Instantiated {
        record(tx, cloud, DeploymentState::Terminated).await?;
    }
    Ok(())
}

/// The state of a logical cloud: that of the latest entry in its history.
///
/// # Errors
/// The query failed, or the stored state is unknown.
pub async fn state(tx: &mut PgConnection, cloud: Uuid) -> Result<DeploymentState, Error> {
    let last = actions(tx, cloud).await?.pop();
    last.map_or(Ok(DeploymentState::Created), |action| action.state.parse().map_err(Error::Internal))
}

/// Deletes the history of a logical cloud.
///
/// # Errors
/// The query failed.
pub async fn forget(tx: &mut PgConnection, cloud: Uuid) -> StoreResult<()> {
    sqlx::query("delete from logical_cloud_action where cloud_id = $1").bind(cloud).execute(tx).await?;
    Ok(())
}
