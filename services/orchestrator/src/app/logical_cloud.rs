//! Logical clouds at level 0. Nothing has to be created in the clusters, so instantiating one only changes its state.

use drover_resources::{TypedDocument, get, set_spec};
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

/// Instantiates a logical cloud. An empty namespace becomes `default`, which EMCO's clients then read.
///
/// # Errors
/// It is instantiated already, it is of level 1, or a query failed.
pub async fn instantiate(tx: &mut PgConnection, cloud: &TypedDocument<LogicalCloudSpec>) -> Result<(), Error> {
    if cloud.spec.level == "1" {
        return Err(Error::NotYet("instantiating a logical cloud of level 1"));
    }
    if state(&mut *tx, cloud.id).await? == DeploymentState::Instantiated {
        return Err(Error::NotNow(format!("The Logical Cloud is already instantiated: {}", cloud.path)));
    }
    if cloud.spec.namespace.is_empty() {
        let spec = LogicalCloudSpec { namespace: cloud.spec.namespace().to_owned(), ..cloud.spec.clone() };
        set_spec(&mut *tx, cloud.id, &spec).await?;
    }
    record(tx, cloud.id, DeploymentState::Instantiated).await?;
    Ok(())
}

/// Terminates a logical cloud.
///
/// # Errors
/// It is not instantiated, a deployment intent group runs in it, or a query failed.
pub async fn terminate(tx: &mut PgConnection, cloud: &TypedDocument<LogicalCloudSpec>) -> Result<(), Error> {
    let sql = "select dig.path from resource dig join resource_reference on from_id = dig.id join deployment on dig_id = dig.id
        where to_id = $1 and dig.kind = $2 and deployment.state = 'Instantiated' order by dig.path limit 1";
    let used: Option<String> = sqlx::query_scalar(sql).bind(cloud.id).bind(DIG.name).fetch_optional(&mut *tx).await?;
    if let Some(used) = used {
        return Err(Error::NotNow(format!("{used} runs in the logical cloud {}; terminate it first", cloud.path)));
    }
    match state(&mut *tx, cloud.id).await? {
        DeploymentState::Instantiated => Ok(record(tx, cloud.id, DeploymentState::Terminated).await?),
        DeploymentState::Terminated => Err(Error::NotNow(format!("The Logical Cloud has already been terminated: {}", cloud.path))),
        _ => Err(Error::NotNow(format!("The Logical Cloud is not instantiated: {}", cloud.path))),
    }
}

/// Takes over cluster references that were added or removed since it was instantiated. At level 0 they count as soon as they are written,
/// so nothing is left to do.
///
/// # Errors
/// It is not instantiated, or a query failed.
pub async fn update(tx: &mut PgConnection, cloud: &TypedDocument<LogicalCloudSpec>) -> Result<(), Error> {
    match state(&mut *tx, cloud.id).await? {
        DeploymentState::Instantiated => Ok(()),
        _ => Err(Error::NotNow(format!("The Logical Cloud is not instantiated: {}", cloud.path))),
    }
}

/// Stops an instantiation or a termination that is going on. At level 0 none ever is.
///
/// # Errors
/// Nothing is going on, or a query failed.
pub async fn stop(tx: &mut PgConnection, cloud: &TypedDocument<LogicalCloudSpec>) -> Result<(), Error> {
    let state = state(&mut *tx, cloud.id).await?;
    Err(Error::NotNow(format!("LogicalCloud is not instantiating or terminating: {} is {state}", cloud.path)))
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
