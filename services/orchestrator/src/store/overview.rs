//! What lists show of many groups and operations at once: a query per list, never one per row. Only reads.

use drover_store::{StoreResult, Timestamp};
use serde_json::Value;
use sqlx::{FromRow, PgConnection};
use uuid::Uuid;

use super::binding::Role;

/// An operation that another one started.
#[derive(Clone, Debug, FromRow)]
pub struct Child {
    /// Its id.
    pub id: Uuid,
    /// Who started it.
    pub parent_id: Uuid,
    /// Its kind.
    pub kind: String,
    /// What its steps know.
    pub state: Value,
    /// Whether it has cut over.
    pub past_pivot: bool,
    /// Grows with every visible change.
    pub revision: i64,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// What these operations started, oldest first.
pub async fn children(db: &mut PgConnection, parents: &[Uuid]) -> StoreResult<Vec<Child>> {
    let sql =
        "select id, parent_id, kind, state, past_pivot, revision, ended_at from workflow where parent_id = any($1) order by created_at, id";
    Ok(sqlx::query_as(sql).bind(parents).fetch_all(db).await?)
}

/// What works on a group.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct Running {
    /// The operation.
    pub operation: Uuid,
    /// Its kind.
    pub kind: String,
    /// Others are moving away for it.
    pub waiting: bool,
}

/// The running operation that holds a group.
pub async fn running(db: &mut PgConnection, dig: Uuid) -> StoreResult<Option<Running>> {
    let sql = "select workflow.id as operation, kind, coalesce((state -> 'search' ->> 'waiting_for_room')::boolean, false) as waiting
        from hold join workflow on workflow.id = workflow_id where dig_id = $1 and ended_at is null";
    Ok(sqlx::query_as(sql).bind(dig).fetch_optional(db).await?)
}

/// A group that is approved or more.
#[derive(Clone, Debug, FromRow)]
pub struct GroupRow {
    /// Its document.
    pub dig_id: Uuid,
    /// Path of the document.
    pub path: String,
    /// State.
    pub state: String,
    /// The operation that works on it.
    pub operation: Option<Uuid>,
    /// Kind of that.
    pub kind: Option<String>,
    /// Others are moving away for it.
    pub waiting: bool,
}

/// Groups that are approved or more, by path; of one project if it is named.
pub async fn groups(db: &mut PgConnection, project: Option<&str>) -> StoreResult<Vec<GroupRow>> {
    let sql = "select dig_id, path, deployment.state, workflow.id as operation, workflow.kind,
            coalesce((workflow.state -> 'search' ->> 'waiting_for_room')::boolean, false) as waiting
        from deployment join resource on resource.id = dig_id left join hold using (dig_id)
            left join workflow on workflow.id = workflow_id and ended_at is null
        where deployment.state <> 'Created' and ($1::text is null or starts_with(path, '/v2/projects/' || $1 || '/')) order by path";
    Ok(sqlx::query_as(sql).bind(project).fetch_all(db).await?)
}

/// Apps of these groups, approved or still running, by name.
pub async fn apps(db: &mut PgConnection, digs: &[Uuid]) -> StoreResult<Vec<(Uuid, String)>> {
    let sql = "select dig_id, app from deployment_app where dig_id = any($1)
        union select dig_id, app from binding where dig_id = any($1) and role <> 'gone' order by 2, 1";
    Ok(sqlx::query_as(sql).bind(digs).fetch_all(db).await?)
}

/// A binding, as lists show it.
#[derive(Clone, Debug, FromRow)]
pub struct Copy {
    /// Binding id.
    pub id: Uuid,
    /// Group.
    pub dig_id: Uuid,
    /// App.
    pub app: String,
    /// Member.
    pub member: String,
    /// Its part.
    pub role: Role,
}

/// Bindings of these groups, oldest first.
pub async fn copies(db: &mut PgConnection, digs: &[Uuid]) -> StoreResult<Vec<Copy>> {
    let sql = "select id, dig_id, app, member, role from binding where dig_id = any($1) and role <> 'gone' order by created_at, member";
    Ok(sqlx::query_as(sql).bind(digs).fetch_all(db).await?)
}
