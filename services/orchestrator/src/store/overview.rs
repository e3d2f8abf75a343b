//! Reads for lists over many groups and operations: one query per list, never one per row.

use drover_api::scheduling::PlacementTerms;
use drover_store::{StoreResult, Timestamp};
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection};
use uuid::Uuid;

use super::binding::Role;

/// The operation that is changing a group.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct RunningOperation {
    pub operation: Uuid,
    pub kind: String,
    /// Other apps are being moved away to make room for it.
    pub waiting: bool,
    /// It failed or was cancelled, and what it has done is being undone.
    pub undoing: bool,
    /// The revision that it is to bring about.
    pub revision: Option<i64>,
    pub started_at: Timestamp,
}

/// The running operation that holds this group.
///
/// # Errors
/// The query failed.
pub async fn running(db: &mut PgConnection, dig: Uuid) -> StoreResult<Option<RunningOperation>> {
    let sql = "select workflow.id as operation, kind, coalesce((state -> 'search' ->> 'waiting_for_room')::boolean, false) as waiting,
            (status = 'undoing' or cancel_requested) as undoing, (input ->> 'revision')::bigint as revision, created_at as started_at
        from hold join workflow on workflow.id = workflow_id where dig_id = $1 and ended_at is null";
    Ok(sqlx::query_as(sql).bind(dig).fetch_optional(db).await?)
}

/// A group that was approved at least once.
#[derive(Clone, Debug, FromRow)]
pub struct GroupRow {
    pub dig_id: Uuid,
    pub path: String,
    pub state: String,
    /// The operation that is changing it now.
    pub operation: Option<Uuid>,
    pub kind: Option<String>,
    /// Other apps are being moved away to make room for it.
    pub waiting: bool,
    /// Why the last attempt to instantiate or update it failed, if nothing has succeeded since.
    pub failed: Option<String>,
}

/// Groups that were approved at least once (of one project if it is named), ordered by path.
///
/// # Errors
/// The query failed.
pub async fn groups(db: &mut PgConnection, project: Option<&str>) -> StoreResult<Vec<GroupRow>> {
    let sql = "select dig_id, path, deployment.state, workflow.id as operation, workflow.kind,
            coalesce((workflow.state -> 'search' ->> 'waiting_for_room')::boolean, false) as waiting,
            case when attempt.status = 'failed' and attempt.created_at >= deployment.changed_at
                then coalesce(attempt.failure ->> 'message', attempt.message, 'no reason is recorded') end as failed
        from deployment join resource on resource.id = dig_id left join hold using (dig_id)
            left join workflow on workflow.id = workflow_id and ended_at is null
            left join lateral (
                select status, created_at, failure, message from workflow last
                where last.subject = concat_ws('/', split_part(path, '/', 4), split_part(path, '/', 6), split_part(path, '/', 7), split_part(path, '/', 9))
                    and last.kind in ('instantiate', 'update')
                order by last.created_at desc, last.id desc limit 1
            ) attempt on true
        where deployment.state <> 'Created' and resource.kind = 'deployment-intent-group' and ($1::text is null or starts_with(path, '/v2/projects/' || $1 || '/')) order by path";
    Ok(sqlx::query_as(sql).bind(project).fetch_all(db).await?)
}

/// Whether an operation of this subject runs, or has begun not longer ago than so many seconds.
///
/// # Errors
/// The query failed.
pub async fn is_recent(db: &mut PgConnection, subject: &str, seconds: u32) -> StoreResult<bool> {
    let sql = "select exists (select from workflow
        where subject = $1 and (ended_at is null or created_at > now() - make_interval(secs => $2)))";
    Ok(sqlx::query_scalar(sql).bind(subject).bind(f64::from(seconds)).fetch_one(db).await?)
}

/// Groups that run, of which a revision has an app for every cluster of a selection (`allOf` with a label or `*` as the cluster), with the
/// number of the revision that was drawn last.
///
/// # Errors
/// The query failed.
pub async fn spreading(db: &mut PgConnection) -> StoreResult<Vec<(Uuid, i64)>> {
    // As in the index `deployment_revision_app_spreads`.
    let sql = r#"select dig_id, revision from deployment
        where state = 'Instantiated' and dig_id in (select dig_id from deployment_revision_app
            where jsonb_path_exists(terms, '$.intent.allOf[*] ? (exists(@.clusterLabel) || @.cluster == "*")')) order by dig_id"#;
    Ok(sqlx::query_as(sql).fetch_all(db).await?)
}

/// An app of the revision that a group runs.
#[derive(Debug, FromRow)]
pub struct SpreadingApp {
    pub dig_id: Uuid,
    pub terms: Json<PlacementTerms>,
    /// Where a copy of it serves.
    pub members: Vec<String>,
}

/// The apps that these groups run; none of a group that is being changed.
///
/// # Errors
/// The query failed, or an app cannot be read.
pub async fn spreading_apps(db: &mut PgConnection, digs: &[Uuid]) -> StoreResult<Vec<SpreadingApp>> {
    // Each group by index (`offset 0`), whatever is believed of the sizes of the tables.
    let sql = "select asked.dig_id, made.terms,
            array(select member from binding where dig_id = asked.dig_id and app = made.app and role = 'current') as members
        from unnest($1::uuid[]) asked (dig_id)
            cross join lateral (
                select max(action.revision) as revision from deployment_action action
                    join deployment_revision made on (made.dig_id, made.revision) = (action.dig_id, action.revision)
                where action.dig_id = asked.dig_id and action.state = 'Instantiated' and action.instance = made.operation offset 0
            ) reached
            cross join lateral (
                select app, terms from deployment_revision_app app where app.dig_id = asked.dig_id and app.revision = reached.revision offset 0
            ) made
        where not exists (select from hold where hold.dig_id = asked.dig_id)";
    Ok(sqlx::query_as(sql).bind(digs).fetch_all(db).await?)
}

/// Apps of these groups that are approved or still running, ordered by name.
///
/// # Errors
/// The query failed.
pub async fn apps(db: &mut PgConnection, digs: &[Uuid]) -> StoreResult<Vec<(Uuid, String)>> {
    let sql = "select dig_id, app from deployment_app where dig_id = any($1)
        union select dig_id, app from binding where dig_id = any($1) and role <> 'gone' order by 2, 1";
    Ok(sqlx::query_as(sql).bind(digs).fetch_all(db).await?)
}

/// The parts of a binding that lists show.
#[derive(Clone, Debug, FromRow)]
pub struct BindingRow {
    pub id: Uuid,
    pub dig_id: Uuid,
    pub app: String,
    pub member: String,
    pub role: Role,
    pub created_at: Timestamp,
    /// Names of its StatefulSets that have volume claims.
    pub keeping: Vec<String>,
}

/// Bindings of these groups that are not gone, oldest first.
///
/// # Errors
/// The query failed.
pub async fn copies(db: &mut PgConnection, digs: &[Uuid]) -> StoreResult<Vec<BindingRow>> {
    let sql = "select id, dig_id, app, member, role, created_at,
        array(select pods ->> 'set' from jsonb_array_elements(request #> '{demand,stateful}') pods order by 1) as keeping
        from binding where dig_id = any($1) and role <> 'gone' order by created_at, member";
    Ok(sqlx::query_as(sql).bind(digs).fetch_all(db).await?)
}
