//! Logical clouds at level 0: there is nothing to make in the clusters, so instantiating one only says so.

use drover_resources::{Typed, by_id, get};
use drover_store::{StoreResult, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Error;
use crate::resources::logical_cloud::LogicalCloudSpec;
use crate::resources::{DIG, LOGICAL_CLOUD};
use crate::store::deployment::DeploymentState;

/// A line of a logical cloud's history.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Action {
    /// State that was reached.
    pub state: String,
    /// When.
    pub at: Timestamp,
}

/// The logical cloud at this path.
pub async fn at(tx: &mut PgConnection, path: &str) -> Result<Typed<LogicalCloudSpec>, Error> {
    get(tx, &LOGICAL_CLOUD, path).await?.ok_or_else(|| Error::NotFound { what: format!("logical cloud {path}") })
}

/// Its history, oldest first.
pub async fn actions(tx: &mut PgConnection, cloud: Uuid) -> StoreResult<Vec<Action>> {
    Ok(sqlx::query_as("select state, at from logical_cloud_action where cloud_id = $1 order by seq").bind(cloud).fetch_all(tx).await?)
}

async fn record(tx: &mut PgConnection, cloud: Uuid, state: DeploymentState) -> StoreResult<()> {
    sqlx::query("insert into logical_cloud_action (cloud_id, state) values ($1, $2)").bind(cloud).bind(state.as_str()).execute(tx).await?;
    Ok(())
}

/// Says that it is instantiated.
pub async fn instantiate(tx: &mut PgConnection, cloud: Uuid) -> Result<(), Error> {
    if state(&mut *tx, cloud).await? != DeploymentState::Instantiated {
        record(tx, cloud, DeploymentState::Instantiated).await?;
    }
    Ok(())
}

/// Says that it is terminated; not while a group of it runs.
pub async fn terminate(tx: &mut PgConnection, cloud: Uuid) -> Result<(), Error> {
    let found: Option<Typed<LogicalCloudSpec>> = by_id(&mut *tx, &LOGICAL_CLOUD, cloud).await?;
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

/// Its state: the last line of its history.
pub async fn state(tx: &mut PgConnection, cloud: Uuid) -> Result<DeploymentState, Error> {
    let last = actions(tx, cloud).await?.pop();
    last.map_or(Ok(DeploymentState::Created), |action| action.state.parse().map_err(Error::Internal))
}

/// Drops its history.
pub async fn forget(tx: &mut PgConnection, cloud: Uuid) -> StoreResult<()> {
    sqlx::query("delete from logical_cloud_action where cloud_id = $1").bind(cloud).execute(tx).await?;
    Ok(())
}
