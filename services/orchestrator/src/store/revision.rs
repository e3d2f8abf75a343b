//! The revisions of a deployment intent group: what each was to run, who asked for it and when.

use drover_api::scheduling::{AppRequest, Demand, PlacementTerms};
use drover_store::{StoreResult, Timestamp};
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection};
use uuid::Uuid;

use super::deployment::ApprovedApp;
use crate::store::controller_answer::ControllerAnswer;

/// Who asks for an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// Empty if nobody says a name.
    pub name: String,
    /// The projects of which it may have apps moved; none: of all.
    pub movable_projects: Option<Vec<String>>,
}

/// A revision that is asked for.
#[derive(Clone, Debug)]
pub struct NewRevision<'a> {
    pub dig: Uuid,
    pub operation: Uuid,
    /// `instantiate`, `update` or `rollback`.
    pub kind: &'static str,
    /// Of a rollback: the revision that it goes back to.
    pub from_revision: Option<i64>,
    pub requested_by: &'a Requester,
    pub description: &'a str,
    /// What controllers answered.
    pub controllers: &'a [ControllerAnswer],
    /// Whether the answers of action controllers count, too, that were given when the group was approved.
    pub with_approved_actions: bool,
    pub apps: &'a [RevisionApp],
}

/// An app of a revision.
#[derive(Clone, Debug)]
pub struct RevisionApp {
    pub app: ApprovedApp,
    pub terms: PlacementTerms,
}

impl RevisionApp {
    /// What it asked placement for.
    pub fn request(&self) -> AppRequest {
        AppRequest { app: self.app.app.clone(), demand: self.app.demand.clone(), terms: self.terms.clone() }
    }
}

/// A revision that was reached.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct Revision {
    pub revision: i64,
    pub operation: Uuid,
    pub kind: String,
    pub from_revision: Option<i64>,
    pub requested_by: String,
    pub description: String,
    pub controllers: Json<Vec<ControllerAnswer>>,
    /// When it became current.
    pub at: Timestamp,
}

/// Draws the next revision of a group, and stores what an operation is to bring about with it. It belongs to that operation even if it
/// fails. Returns its number.
///
/// # Errors
/// The query failed, or the group was never approved.
pub async fn draw(tx: &mut PgConnection, new: &NewRevision<'_>) -> StoreResult<i64> {
    let apps = |of: fn(&ApprovedApp) -> &str| new.apps.iter().map(|one| of(&one.app)).collect::<Vec<_>>();
    let revision = sqlx::query_scalar(
        r#"with drawn as (
            update deployment set revision = revision + 1 where dig_id = $1 returning dig_id, revision,
                case when $9 then jsonb_path_query_array(controllers, '$[*] ? (@.type == "action")') else '[]' end as actions
        ), made as (
            insert into deployment_revision
                (dig_id, revision, operation, kind, from_revision, requested_by, description, movable_projects, controllers)
            select dig_id, revision, $2, $3, $4, $5, $6, $7, actions || $8 from drawn
            returning dig_id, revision
        ), apps as (
            insert into deployment_revision_app (dig_id, revision, app, digest, namespace, demand, terms)
            select made.*, app.* from made, unnest($10::text[], $11::text[], $12::text[], $13::jsonb[], $14::jsonb[]) app
        )
        select revision from drawn"#,
    )
    .bind(new.dig)
    .bind(new.operation)
    .bind(new.kind)
    .bind(new.from_revision)
    .bind(&new.requested_by.name)
    .bind(new.description)
    .bind(&new.requested_by.movable_projects)
    .bind(Json(new.controllers))
    .bind(new.with_approved_actions)
    .bind(apps(|app| &app.app))
    .bind(apps(|app| &app.digest))
    .bind(apps(|app| &app.namespace))
    .bind(new.apps.iter().map(|one| Json(&one.app.demand)).collect::<Vec<_>>())
    .bind(new.apps.iter().map(|one| Json(&one.terms)).collect::<Vec<_>>())
    .fetch_one(tx)
    .await?;
    Ok(revision)
}

/// The projects of which an operation on a group may move apps; none: of all. An operation that nobody asked for, such as growth, has the
/// rights with which the group was changed last.
///
/// # Errors
/// The query failed.
pub async fn movable_projects(tx: &mut PgConnection, operation: Uuid, dig: Uuid) -> StoreResult<Option<Vec<String>>> {
    let sql = "select movable_projects from deployment_revision where operation = $1 or dig_id = $2
        order by operation is not distinct from $1 desc, revision desc limit 1";
    let found: Option<Option<Vec<String>>> = sqlx::query_scalar(sql).bind(operation).bind(dig).fetch_optional(tx).await?;
    Ok(found.flatten())
}

/// The revisions that were reached, oldest first.
///
/// # Errors
/// The query failed.
pub async fn reached(tx: &mut PgConnection, dig: Uuid) -> StoreResult<Vec<Revision>> {
    let sql = "select distinct on (revision) revision, operation, kind, from_revision, requested_by, description, controllers, at
        from deployment_revision join deployment_action using (dig_id, revision)
        where dig_id = $1 and state = 'Instantiated' and instance = operation order by revision, seq";
    Ok(sqlx::query_as(sql).bind(dig).fetch_all(tx).await?)
}

/// The apps of a revision, ordered by name.
///
/// # Errors
/// The query failed.
pub async fn apps(tx: &mut PgConnection, dig: Uuid, revision: i64) -> StoreResult<Vec<RevisionApp>> {
    type Row = (String, String, String, Json<Demand>, Json<PlacementTerms>);
    let rows: Vec<Row> = sqlx::query_as(
        "select app, digest, namespace, demand, terms from deployment_revision_app where dig_id = $1 and revision = $2 order by app",
    )
    .bind(dig)
    .bind(revision)
    .fetch_all(tx)
    .await?;
    let app = |(app, digest, namespace, Json(demand), Json(terms)): Row| RevisionApp {
        app: ApprovedApp { app, digest, namespace, demand },
        terms,
    };
    Ok(rows.into_iter().map(app).collect())
}
