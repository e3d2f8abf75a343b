//! Desired bindings: one row each, that of the writer with the highest fence.

use std::sync::Arc;

use drover_api::bindings::{BoundsOrder, DesiredBinding, DesiredState, Share};
use drover_api::grants::Grants;
use drover_scheduling::{DigRef, MemberKey};
use drover_store::{Store, StoreResult};
use sqlx::types::Json;
use uuid::Uuid;

use super::hooks::Progress;

/// A stored binding.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The desired state.
    pub desired: DesiredBinding,
    /// Absent is desired, and all objects are deleted.
    pub gone: bool,
    /// Objects that were left in the member because others need them, a sentence per object.
    pub kept: Vec<String>,
    /// How far the hooks of its chart have run.
    pub hooks: Option<Box<Progress>>,
    /// Digest of the bundle whose objects have been ready for as long as its app asks, if it asks.
    pub served: Option<Arc<str>>,
    /// The run of the chart's tests that was asked for last.
    pub test: Option<Uuid>,
    /// It has only the names of an app that runs elsewhere ([`crate::names`]).
    pub stand_in: bool,
    /// Its share of bounds that count for all members of its app, if it was told one.
    pub bounds: Option<Arc<BoundsOrder>>,
}

/// The columns of a [`Raw`].
macro_rules! columns {
    () => {
        "id, dig, app, member, namespace, digest, present, fence, gone, kept, grants, act_as, share, hooks, served, test, rollback,
         delete_volumes, names, stand_in, bounds"
    };
}
pub(super) use columns;

#[derive(sqlx::FromRow)]
pub(super) struct Raw {
    id: Uuid,
    dig: Json<Arc<DigRef>>,
    app: String,
    member: String,
    namespace: String,
    digest: String,
    present: bool,
    fence: i64,
    gone: bool,
    kept: Vec<String>,
    grants: Option<Json<Arc<Grants>>>,
    act_as: Option<String>,
    share: Option<Json<Arc<Share>>>,
    hooks: Option<Json<Progress>>,
    served: Option<String>,
    test: Option<Uuid>,
    rollback: bool,
    delete_volumes: bool,
    names: bool,
    stand_in: bool,
    bounds: Option<Json<Arc<BoundsOrder>>>,
}

impl From<Raw> for Row {
    fn from(raw: Raw) -> Self {
        let state = if raw.present { DesiredState::Present } else { DesiredState::Absent };
        let Raw {
            id,
            dig: Json(dig),
            app,
            member,
            namespace,
            digest,
            fence,
            gone,
            kept,
            grants,
            act_as,
            share,
            hooks,
            served,
            test,
            rollback,
            delete_volumes,
            names,
            stand_in,
            bounds,
            ..
        } = raw;
        let hooks = hooks.map(|Json(progress)| Box::new(progress));
        let grants = grants.map(|Json(grants)| grants);
        let share = share.map(|Json(share)| share);
        let digest = digest.into();
        Self {
            desired: DesiredBinding {
                id,
                dig,
                app,
                member: MemberKey(member),
                namespace,
                digest,
                state,
                fence,
                grants,
                act_as: act_as.map(Into::into),
                share,
                rollback,
                delete_volumes,
                names,
            },
            gone,
            kept,
            hooks,
            served: served.map(Into::into),
            test,
            stand_in,
            bounds: bounds.map(|Json(bounds)| bounds),
        }
    }
}

/// Stores a desired binding. That its volumes are to go is kept when it is told again to be absent, and so is the account that wrote it.
/// `None`: nothing was written, because the stored row has a higher fence, or because the bundle of a binding that is to be present is
/// not stored.
pub async fn put(store: &Store, desired: &DesiredBinding) -> StoreResult<Option<Row>> {
    let row: Option<Raw> = sqlx::query_as(
        concat!(
            "insert into binding (id, dig, app, member, namespace, digest, present, fence, grants, share, rollback, delete_volumes, names, act_as)
         select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14
         where not $7 or exists (select from bundle where digest = $6)
         on conflict (id) do update set dig = $2, app = $3, member = $4, namespace = $5, digest = $6, present = $7, fence = $8, grants = $9, share = $10, rollback = $11,
             delete_volumes = not $7 and ($12 or binding.delete_volumes), names = $13, act_as = case when $7 then $14 else binding.act_as end,
             gone = binding.gone and not $7, kept = case when $7 then '{}' else binding.kept end,
             hooks = case when binding.gone and $7 then null else binding.hooks end,
             served = case when $7 then binding.served end,
             test = case when $7 and binding.digest = excluded.digest then binding.test end, updated_at = now()
         where binding.fence <= excluded.fence
         returning ",
            columns!()
        ),
    )
    .bind(desired.id)
    .bind(Json(&desired.dig))
    .bind(&desired.app)
    .bind(&desired.member.0)
    .bind(&desired.namespace)
    .bind(&*desired.digest)
    .bind(desired.state == DesiredState::Present)
    .bind(desired.fence)
    .bind(desired.grants.as_ref().map(Json))
    .bind(desired.share.as_ref().map(Json))
    .bind(desired.rollback)
    .bind(desired.delete_volumes)
    .bind(desired.names)
    .bind(desired.act_as.as_deref())
    .fetch_optional(&mut *store.acquire().await?)
    .await?;
    Ok(row.map(Row::from))
}

/// The row of a binding; `None` if it is not stored.
pub async fn get(store: &Store, id: Uuid) -> StoreResult<Option<Row>> {
    let row: Option<Raw> = sqlx::query_as(concat!("select ", columns!(), " from binding where id = $1"))
        .bind(id)
        .fetch_optional(&mut *store.acquire().await?)
        .await?;
    Ok(row.map(Row::from))
}

/// All rows of a member, by id.
pub async fn of_member(store: &Store, member: &MemberKey) -> StoreResult<Vec<Row>> {
    let rows: Vec<Raw> = sqlx::query_as(concat!("select ", columns!(), " from binding where member = $1 order by id"))
        .bind(&member.0)
        .fetch_all(&mut *store.acquire().await?)
        .await?;
    Ok(rows.into_iter().map(Row::from).collect())
}

/// All rows, by id.
pub async fn all(store: &Store) -> StoreResult<Vec<Row>> {
    let rows: Vec<Raw> =
        sqlx::query_as(concat!("select ", columns!(), " from binding order by id")).fetch_all(&mut *store.acquire().await?).await?;
    Ok(rows.into_iter().map(Row::from).collect())
}

/// The other members where a copy of this app is to be present.
pub async fn other_members(store: &Store, desired: &DesiredBinding) -> StoreResult<Vec<MemberKey>> {
    let members: Vec<String> = sqlx::query_scalar(
        "select distinct member from binding where dig ->> 'id' = $1 and app = $2 and member <> $3 and present and not stand_in order by member",
    )
    .bind(desired.dig.id.to_string())
    .bind(&desired.app)
    .bind(&desired.member.0)
    .fetch_all(&mut *store.acquire().await?)
    .await?;
    Ok(members.into_iter().map(MemberKey).collect())
}

/// Records that the objects of a bundle have been ready for as long as its app asks, unless the desired state has changed since. Returns
/// whether it was recorded.
pub async fn set_served(store: &Store, id: Uuid, digest: &str, fence: i64) -> StoreResult<bool> {
    let done = sqlx::query("update binding set served = $2 where id = $1 and fence = $3 and digest = $2 and present")
        .bind(id)
        .bind(digest)
        .bind(fence)
        .execute(&mut *store.acquire().await?)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Asks for a run of the chart's tests (`None`: for none), unless a writer with a higher fence has stored the binding. Returns whether it
/// was stored.
pub async fn set_test(store: &Store, id: Uuid, run: Option<Uuid>, fence: i64) -> StoreResult<bool> {
    let done = sqlx::query("update binding set test = $2 where id = $1 and fence <= $3 and present")
        .bind(id)
        .bind(run)
        .bind(fence)
        .execute(&mut *store.acquire().await?)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Stores the share of a binding, unless there is a later one. Returns whether it was stored.
pub async fn set_bounds(store: &Store, id: Uuid, order: &BoundsOrder) -> StoreResult<bool> {
    let done =
        sqlx::query("update binding set bounds = $2 where id = $1 and present and (bounds is null or (bounds ->> 'version')::bigint < $3)")
            .bind(id)
            .bind(Json(order))
            .bind(order.version)
            .execute(&mut *store.acquire().await?)
            .await?;
    Ok(done.rows_affected() > 0)
}

/// Marks a binding as gone, unless its desired state has changed since. Returns whether it was marked.
pub async fn set_gone(store: &Store, id: Uuid, fence: i64) -> StoreResult<bool> {
    let done = sqlx::query("update binding set gone = true where id = $1 and fence = $2 and not present")
        .bind(id)
        .bind(fence)
        .execute(&mut *store.acquire().await?)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Deletes the row of a binding that is gone. Returns whether there was one.
pub async fn forget(store: &Store, id: Uuid) -> StoreResult<bool> {
    let done = sqlx::query("delete from binding where id = $1 and gone").bind(id).execute(&mut *store.acquire().await?).await?;
    Ok(done.rows_affected() > 0)
}
