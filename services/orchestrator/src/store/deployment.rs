//! State, revision, history and approved apps of a deployment intent group.

use std::fmt;
use std::str::FromStr;

use drover_api::scheduling::Demand;
use drover_store::{StoreResult, Timestamp};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::resources::DIG;
use crate::store::controller_answer::ControllerAnswer;
use crate::store::hold;

/// States of a deployment intent group: those of EMCO that Drover uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeploymentState {
    Created,
    Approved,
    Instantiated,
    Terminated,
    /// An instantiation was stopped and undone; nothing runs.
    InstantiateStopped,
}

impl DeploymentState {
    /// The state's name in EMCO.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Approved => "Approved",
            Self::Instantiated => "Instantiated",
            Self::Terminated => "Terminated",
            Self::InstantiateStopped => "InstantiateStopped",
        }
    }
}

impl fmt::Display for DeploymentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for DeploymentState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Created, Self::Approved, Self::Instantiated, Self::Terminated, Self::InstantiateStopped]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not a state that this version knows"))
    }
}

/// Where a deployment intent group is in its lifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployment {
    pub state: DeploymentState,
    /// 0 before the first instantiation.
    pub revision: i64,
}

/// One entry of the history of a group.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct DeploymentAction {
    /// State that was reached, or the word for what was done.
    pub state: String,
    pub instance: Option<Uuid>,
    pub revision: i64,
    pub at: Timestamp,
}

/// An app as approved: what instantiate will deploy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApprovedApp {
    pub app: String,
    /// Digest of its bundle.
    pub digest: String,
    /// For objects that name none.
    pub namespace: String,
    pub demand: Demand,
}

/// State and revision of a group. With `lock` nobody else can change them until the transaction ends.
///
/// # Errors
/// The query failed, or the stored state is unknown.
pub async fn load(tx: &mut PgConnection, dig: Uuid, lock: bool) -> StoreResult<Deployment> {
    let row: Option<(String, i64)> = if lock {
        sqlx::query_as("select state, revision from deployment where dig_id = $1 for update").bind(dig).fetch_optional(tx).await?
    } else {
        sqlx::query_as("select state, revision from deployment where dig_id = $1").bind(dig).fetch_optional(tx).await?
    };
    Deployment::of(row)
}

impl Deployment {
    /// What a row says, or what counts without one.
    pub(super) fn of(row: Option<(String, i64)>) -> StoreResult<Self> {
        let Some((state, revision)) = row else { return Ok(Self { state: DeploymentState::Created, revision: 0 }) };
        let state = state.parse().map_err(|error: String| sqlx::Error::Decode(error.into()))?;
        Ok(Self { state, revision })
    }
}

/// Sets state and revision of a group and adds both to its history.
///
/// # Errors
/// The query failed.
pub async fn reach(tx: &mut PgConnection, dig: Uuid, state: DeploymentState, revision: i64, instance: Option<Uuid>) -> StoreResult<()> {
    sqlx::query(
        "with reached as (
            insert into deployment (dig_id, state, revision) values ($1, $2, $3)
            on conflict (dig_id) do update set state = excluded.state, revision = excluded.revision, changed_at = now()
            returning dig_id
        )
        insert into deployment_action (dig_id, state, instance, revision) select dig_id, $2, $4, $3 from reached",
    )
    .bind(dig)
    .bind(state.as_str())
    .bind(revision)
    .bind(instance)
    .execute(tx)
    .await?;
    Ok(())
}

/// Adds an entry to the history of a group.
///
/// # Errors
/// The query failed.
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

/// The history of a group, oldest first.
///
/// # Errors
/// The query failed.
pub async fn actions(tx: &mut PgConnection, dig: Uuid) -> StoreResult<Vec<DeploymentAction>> {
    Ok(sqlx::query_as("select state, instance, revision, at from deployment_action where dig_id = $1 order by seq")
        .bind(dig)
        .fetch_all(tx)
        .await?)
}

/// Replaces the approved apps of a group.
///
/// # Errors
/// The query failed.
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

/// Records what controllers answered when a group was approved.
///
/// # Errors
/// The query failed.
pub async fn set_controller_answers(tx: &mut PgConnection, dig: Uuid, answers: &[ControllerAnswer]) -> StoreResult<()> {
    sqlx::query("update deployment set controllers = $2 where dig_id = $1").bind(dig).bind(Json(answers)).execute(tx).await?;
    Ok(())
}

/// Records that the answers of controllers for this revision count for the approved apps, which an update has made those of the revision.
///
/// # Errors
/// The query failed.
pub async fn keep_controller_answers(tx: &mut PgConnection, dig: Uuid, revision: i64) -> StoreResult<()> {
    let sql = "update deployment set controllers = made.controllers from deployment_revision made
        where deployment.dig_id = $1 and made.dig_id = $1 and made.revision = $2";
    sqlx::query(sql).bind(dig).bind(revision).execute(tx).await?;
    Ok(())
}

/// What is approved of a group.
#[derive(Clone, Debug)]
pub struct Approved {
    /// Ordered by name.
    pub apps: Vec<ApprovedApp>,
    /// Whether copies of some apps of the group are current.
    pub running: bool,
}

/// The approved apps of a group, ordered by name, and whether some of its apps run.
///
/// # Errors
/// The query failed.
pub async fn approved(tx: &mut PgConnection, dig: Uuid) -> StoreResult<Approved> {
    let rows: Vec<(String, String, String, Json<Demand>, bool)> = sqlx::query_as(
        "select app, digest, namespace, demand, exists (select from binding where dig_id = $1 and role = 'current')
         from deployment_app where dig_id = $1 order by app",
    )
    .bind(dig)
    .fetch_all(tx)
    .await?;
    let running = rows.iter().any(|(.., running)| *running);
    let app = |(app, digest, namespace, Json(demand), _)| ApprovedApp { app, digest, namespace, demand };
    Ok(Approved { apps: rows.into_iter().map(app).collect(), running })
}

/// The approved apps of a group, ordered by name.
///
/// # Errors
/// The query failed.
pub async fn approved_apps(tx: &mut PgConnection, dig: Uuid) -> StoreResult<Vec<ApprovedApp>> {
    Ok(approved(tx, dig).await?.apps)
}

/// The path of a group that runs in a logical cloud or is being changed in it.
///
/// # Errors
/// A query failed.
pub async fn using_cloud(tx: &mut PgConnection, cloud: Uuid) -> StoreResult<Option<String>> {
    let sql = "select dig.path from resource dig join resource_reference on from_id = dig.id join deployment on dig_id = dig.id
        where to_id = $1 and dig.kind = $2 and (deployment.state = 'Instantiated' or dig.id = any($3)) order by dig.path limit 1";
    let held: Vec<Uuid> = hold::all(&mut *tx).await?.into_iter().map(|(dig, _)| dig).collect();
    Ok(sqlx::query_scalar(sql).bind(cloud).bind(DIG.name).bind(held).fetch_optional(tx).await?)
}
