//! Bindings: one app on one member, with its role.

use std::sync::Arc;

use drover_api::bindings::{DesiredBinding, DesiredState};
use drover_api::scheduling::{AppRequest, Demand, DigRef, MemberKey};
use drover_store::StoreResult;
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection};
use uuid::Uuid;

use crate::render::sent_digest;

/// The role of a binding for its app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, sqlx::Type)]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Its operation is starting it; it does not serve yet.
    Target,
    /// It serves.
    Current,
    /// It is to be removed.
    Retiring,
    /// Removed, and its claim is released. The row is kept for a minute, so that a late write is still refused by its fence.
    Gone,
}

/// A binding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    /// Also the id of its claim and of its desired state at the synchronizer.
    pub id: Uuid,
    pub dig: DigRef,
    pub app: String,
    pub member: MemberKey,
    /// For objects that name none.
    pub namespace: String,
    /// Digest of its bundle.
    pub digest: String,
    /// What its claim in the ledger asks for.
    pub request: AppRequest,
    pub role: Role,
    /// Operation that changed it last.
    pub operation: Uuid,
}

impl Binding {
    /// What the synchronizer is asked to make true, with nothing said about the rights of its logical cloud, which count only for objects that
    /// are to exist.
    pub fn desired(&self, state: DesiredState, fence: i64) -> DesiredBinding {
        DesiredBinding {
            id: self.id,
            dig: Arc::new(self.dig.clone()),
            app: self.app.clone(),
            member: self.member.clone(),
            namespace: self.namespace.clone(),
            digest: sent_digest(&self.digest, &self.member).into(),
            state,
            fence,
            grants: None,
            act_as: None,
            share: None,
            rollback: false,
            delete_volumes: false,
            names: self.has_names(),
        }
    }

    /// Whether callers may find the app by a name in other clusters: it has Services, and its owner does not forbid that it moves away
    /// from those who call it.
    fn has_names(&self) -> bool {
        !self.request.demand.services.is_empty() && self.request.terms.allow_dependants != Some(false)
    }
}

#[derive(FromRow)]
struct Row {
    id: Uuid,
    dig_id: Uuid,
    project: String,
    composite_app: String,
    version: String,
    dig: String,
    app: String,
    member: String,
    namespace: String,
    digest: String,
    request: Json<AppRequest>,
    role: Role,
    operation: Uuid,
}

impl From<Row> for Binding {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            dig: DigRef { id: row.dig_id, project: row.project, composite_app: row.composite_app, version: row.version, name: row.dig },
            app: row.app,
            member: MemberKey(row.member),
            namespace: row.namespace,
            digest: row.digest,
            request: row.request.0,
            role: row.role,
            operation: row.operation,
        }
    }
}

fn all(rows: Vec<Row>) -> Vec<Binding> {
    rows.into_iter().map(Binding::from).collect()
}

/// Inserts a binding or replaces the one of that id.
///
/// # Errors
/// The query failed.
pub async fn put(tx: &mut PgConnection, binding: &Binding) -> StoreResult<()> {
    put_all(tx, std::slice::from_ref(binding)).await
}

/// Inserts bindings or replaces those of the same ids. No id may occur twice.
///
/// # Errors
/// The query failed.
pub async fn put_all(tx: &mut PgConnection, bindings: &[Binding]) -> StoreResult<()> {
    if bindings.is_empty() {
        return Ok(());
    }
    let ids = |of: fn(&Binding) -> Uuid| bindings.iter().map(of).collect::<Vec<_>>();
    let texts = |of: fn(&Binding) -> &str| bindings.iter().map(of).collect::<Vec<_>>();
    let sql =
        "insert into binding (id, dig_id, project, composite_app, version, dig, app, member, namespace, digest, request, role, operation)
        select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
            $10::text[], $11::jsonb[], $12::text[], $13::uuid[])
        on conflict (id) do update set namespace = excluded.namespace, digest = excluded.digest, request = excluded.request,
            role = excluded.role, operation = excluded.operation, changed_at = now()";
    sqlx::query(sql)
        .bind(ids(|one| one.id))
        .bind(ids(|one| one.dig.id))
        .bind(texts(|one| &one.dig.project))
        .bind(texts(|one| &one.dig.composite_app))
        .bind(texts(|one| &one.dig.version))
        .bind(texts(|one| &one.dig.name))
        .bind(texts(|one| &one.app))
        .bind(texts(|one| &one.member.0))
        .bind(texts(|one| &one.namespace))
        .bind(texts(|one| &one.digest))
        .bind(bindings.iter().map(|one| Json(&one.request)).collect::<Vec<_>>())
        .bind(bindings.iter().map(|one| one.role).collect::<Vec<_>>())
        .bind(ids(|one| one.operation))
        .execute(tx)
        .await?;
    Ok(())
}

/// Changes the role of bindings. A member in which a copy becomes current has accepted its objects.
///
/// # Errors
/// The query failed.
pub async fn set_role(tx: &mut PgConnection, ids: &[Uuid], role: Role, operation: Uuid) -> StoreResult<()> {
    let sql = "with changed as (
            update binding set role = $2, operation = $3, changed_at = now() where id = any($1) returning dig_id, app, member
        )
        delete from refusal using changed
        where $4 and (refusal.dig_id, refusal.app, refusal.member) = (changed.dig_id, changed.app, changed.member)";
    sqlx::query(sql).bind(ids).bind(role).bind(operation).bind(role == Role::Current).execute(tx).await?;
    Ok(())
}

/// Changes the bundle and the request of a binding.
///
/// # Errors
/// The query failed.
pub async fn set_content(tx: &mut PgConnection, id: Uuid, digest: &str, request: &AppRequest, operation: Uuid) -> StoreResult<()> {
    sqlx::query("update binding set digest = $2, request = $3, operation = $4, changed_at = now() where id = $1")
        .bind(id)
        .bind(digest)
        .bind(Json(request))
        .bind(operation)
        .execute(tx)
        .await?;
    Ok(())
}

/// The serving bindings among these ids, each with the demand that was approved.
///
/// # Errors
/// The query failed.
pub async fn serving(tx: &mut PgConnection, ids: &[Uuid]) -> StoreResult<Vec<(Binding, Demand)>> {
    #[derive(FromRow)]
    struct WithDemand {
        #[sqlx(flatten)]
        row: Row,
        demand: Json<Demand>,
    }
    let rows: Vec<WithDemand> = sqlx::query_as(
        "select binding.*, deployment_app.demand from binding join deployment_app using (dig_id, app)
        where role = 'current' and binding.id = any($1)",
    )
    .bind(ids)
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|found| (found.row.into(), found.demand.0)).collect())
}

/// The serving bindings whose claim was resized. It reads all bindings.
///
/// # Errors
/// The query failed.
pub async fn resized(tx: &mut PgConnection) -> StoreResult<Vec<Uuid>> {
    let sql = "select binding.id from binding join deployment_app using (dig_id, app)
        where role = 'current' and request -> 'demand' <> demand";
    Ok(sqlx::query_scalar(sql).fetch_all(tx).await?)
}

/// What was approved for the app of a binding.
#[derive(FromRow)]
pub struct ApprovedDemand {
    pub binding: Uuid,
    pub demand: Json<Demand>,
    /// All copies of the app that are not gone.
    pub copies: Vec<Uuid>,
}

/// What was approved for the apps of these bindings.
///
/// # Errors
/// The query failed.
pub async fn approved_demands(tx: &mut PgConnection, ids: &[Uuid]) -> StoreResult<Vec<ApprovedDemand>> {
    Ok(sqlx::query_as(
        "select one.id as binding, deployment_app.demand, array_agg(copy.id order by copy.id) as copies
        from binding one join deployment_app using (dig_id, app) join binding copy using (dig_id, app)
        where one.id = any($1) and copy.role <> 'gone' group by one.id, deployment_app.demand",
    )
    .bind(ids)
    .fetch_all(tx)
    .await?)
}

/// Changes the request of a binding, unless an operation has changed the binding since it was read.
///
/// # Errors
/// The query failed.
pub async fn set_request(tx: &mut PgConnection, binding: &Binding, request: &AppRequest) -> StoreResult<()> {
    sqlx::query("update binding set request = $2 where id = $1 and operation = $3 and digest = $4 and role = 'current'")
        .bind(binding.id)
        .bind(Json(request))
        .bind(binding.operation)
        .bind(&binding.digest)
        .execute(tx)
        .await?;
    Ok(())
}

/// Bindings that have been [`Role::Gone`] for a minute: their rows may be deleted.
///
/// # Errors
/// The query failed.
pub async fn forgettable(tx: &mut PgConnection) -> StoreResult<Vec<Uuid>> {
    Ok(sqlx::query_scalar("select id from binding where role = 'gone' and changed_at < now() - interval '1 minute'").fetch_all(tx).await?)
}

/// Deletes bindings.
///
/// # Errors
/// The query failed.
pub async fn delete(tx: &mut PgConnection, ids: &[Uuid]) -> StoreResult<()> {
    sqlx::query("delete from binding where id = any($1)").bind(ids).execute(tx).await?;
    Ok(())
}

/// Bindings by id.
///
/// # Errors
/// The query failed.
pub async fn find(tx: &mut PgConnection, ids: &[Uuid]) -> StoreResult<Vec<Binding>> {
    Ok(all(sqlx::query_as("select * from binding where id = any($1) order by app, member").bind(ids).fetch_all(tx).await?))
}

/// Bindings of a deployment intent group that are not gone.
///
/// # Errors
/// The query failed.
pub async fn of_dig(tx: &mut PgConnection, dig: Uuid) -> StoreResult<Vec<Binding>> {
    Ok(all(sqlx::query_as("select * from binding where dig_id = $1 and role <> 'gone' order by app, member, created_at")
        .bind(dig)
        .fetch_all(tx)
        .await?))
}

/// Bindings that are not gone, of the apps that run or start one of these bundles.
///
/// # Errors
/// The query failed.
pub async fn of_apps_with_bundles(tx: &mut PgConnection, digests: &[String]) -> StoreResult<Vec<Binding>> {
    Ok(all(sqlx::query_as(
        "select * from binding where role <> 'gone' and (dig_id, app) in (
             select dig_id, app from binding where digest = any($1) and role in ('target', 'current'))
         order by dig_id, app, member, created_at",
    )
    .bind(digests)
    .fetch_all(tx)
    .await?))
}

/// Bindings that an operation changed last.
///
/// # Errors
/// The query failed.
pub async fn of_operation(tx: &mut PgConnection, operation: Uuid) -> StoreResult<Vec<Binding>> {
    Ok(all(sqlx::query_as("select * from binding where operation = $1 order by app, member").bind(operation).fetch_all(tx).await?))
}

/// Bindings that are to be removed, those that have waited longest first.
///
/// # Errors
/// The query failed.
pub async fn retiring(tx: &mut PgConnection) -> StoreResult<Vec<Binding>> {
    Ok(all(sqlx::query_as("select * from binding where role = 'retiring' order by changed_at").fetch_all(tx).await?))
}

/// Those of these ids that are bindings and not gone: their claims are in use.
///
/// # Errors
/// The query failed.
pub async fn explained(tx: &mut PgConnection, ids: &[Uuid]) -> StoreResult<Vec<Uuid>> {
    Ok(sqlx::query_scalar("select id from binding where id = any($1) and role <> 'gone'").bind(ids).fetch_all(tx).await?)
}
