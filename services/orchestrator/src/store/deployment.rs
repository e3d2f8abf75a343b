//! State, revision, history and approved apps of a deployment intent group.

use std::fmt;
use std::str::FromStr;

use drover_api::scheduling::Demand;
use drover_store::{StoreResult, Timestamp};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

/// EMCO's states that Drover uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum State {
    Created,
    Approved,
    Instantiated,
    Terminated,
}

impl State {
    /// EMCO's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Approved => "Approved",
            Self::Instantiated => "Instantiated",
            Self::Terminated => "Terminated",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for State {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Created, Self::Approved, Self::Instantiated, Self::Terminated]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no state of this version"))
    }
}

/// State and revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// State.
    pub state: State,
    /// Revision; 0 before the first instantiation.
    pub revision: i64,
}

/// One line of the history.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Action {
    /// State that was reached.
    pub state: String,
    /// Operation that reached it.
    pub instance: Option<Uuid>,
    /// Revision.
    pub revision: i64,
    /// When.
    pub at: Timestamp,
}

/// An app as it was approved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApprovedApp {
    /// App.
    pub app: String,
    /// Its bundle.
    pub digest: String,
    /// Namespace of objects that name none.
    pub namespace: String,
    /// What it needs.
    pub demand: Demand,
}

/// State and revision; `lock` keeps others from changing them until the transaction ends.
pub async fn load(tx: &mut PgConnection, dig: Uuid, lock: bool) -> StoreResult<Deployment> {
    let row: Option<(String, i64)> = if lock {
        sqlx::query_as("select state, revision from deployment where dig_id = $1 for update").bind(dig).fetch_optional(tx).await?
    } else {
        sqlx::query_as("select state, revision from deployment where dig_id = $1").bind(dig).fetch_optional(tx).await?
    };
    let Some((state, revision)) = row else { return Ok(Deployment { state: State::Created, revision: 0 }) };
    let state = state.parse().map_err(|error: String| sqlx::Error::Decode(error.into()))?;
    Ok(Deployment { state, revision })
}

/// Reaches a state.
pub async fn reach(tx: &mut PgConnection, dig: Uuid, state: State, revision: i64, instance: Option<Uuid>) -> StoreResult<()> {
    sqlx::query(
        "insert into deployment (dig_id, state, revision) values ($1, $2, $3)
        on conflict (dig_id) do update set state = excluded.state, revision = excluded.revision, changed_at = now()",
    )
    .bind(dig)
    .bind(state.as_str())
    .bind(revision)
    .execute(&mut *tx)
    .await?;
    record(tx, dig, state.as_str(), revision, instance).await
}

/// Adds a line to the history.
pub async fn record(tx: &mut PgConnection, dig: Uuid, state: &str, revision: i64, instance: Option<Uuid>) -> StoreResult<()> {
    sqlx::query("insert into deployment_action (dig_id, state, instance, revision) values ($1, $2, $3, $4)")
        .bind(dig)
        .bind(state)
        .bind(instance)
        .bind(revision)
        .execute(tx)
        .await?;
    Ok(())
}

/// Counts one revision on; the number is the operation's, whether it succeeds or not.
pub async fn next_revision(tx: &mut PgConnection, dig: Uuid) -> StoreResult<i64> {
    Ok(sqlx::query_scalar("update deployment set revision = revision + 1 where dig_id = $1 returning revision")
        .bind(dig)
        .fetch_one(tx)
        .await?)
}

/// The history, oldest first.
pub async fn actions(tx: &mut PgConnection, dig: Uuid) -> StoreResult<Vec<Action>> {
    Ok(sqlx::query_as("select state, instance, revision, at from deployment_action where dig_id = $1 order by seq")
        .bind(dig)
        .fetch_all(tx)
        .await?)
}

/// Replaces the approved apps.
pub async fn approve_apps(tx: &mut PgConnection, dig: Uuid, apps: &[ApprovedApp]) -> StoreResult<()> {
    sqlx::query("delete from deployment_app where dig_id = $1").bind(dig).execute(&mut *tx).await?;
    for app in apps {
        sqlx::query("insert into deployment_app (dig_id, app, digest, namespace, demand) values ($1, $2, $3, $4, $5)")
            .bind(dig)
            .bind(&app.app)
            .bind(&app.digest)
            .bind(&app.namespace)
            .bind(Json(&app.demand))
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

/// The approved apps by name.
pub async fn approved_apps(tx: &mut PgConnection, dig: Uuid) -> StoreResult<Vec<ApprovedApp>> {
    let rows: Vec<(String, String, String, Json<Demand>)> =
        sqlx::query_as("select app, digest, namespace, demand from deployment_app where dig_id = $1 order by app")
            .bind(dig)
            .fetch_all(tx)
            .await?;
    Ok(rows.into_iter().map(|(app, digest, namespace, Json(demand))| ApprovedApp { app, digest, namespace, demand }).collect())
}
