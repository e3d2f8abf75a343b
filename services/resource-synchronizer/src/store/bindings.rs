//! Desired bindings: one row each, that of the writer with the highest fence.

use std::sync::Arc;

use drover_api::bindings::{BoundsOrder, DesiredBinding, DesiredState, Share};
use drover_api::grants::Grants;
use drover_scheduling::{DigRef, MemberKey};
use drover_store::{Store, StoreResult};
use sqlx::types::Json;
use uuid::Uuid;

use super::bundles::SealedBundle;
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

/// Stores desired bindings, each of them once, and a bundle. Of a bundle that is stored already only `exports` changes: an earlier version did not
/// know it. That the volumes of a binding are to go is kept when it is told again to be absent, and so is the account that wrote it.
///
/// Returns the rows of the bindings that were written. Not written is one whose stored row has a higher fence, and one that is to be present and
/// whose bundle is not stored.
pub async fn put(store: &Store, bundle: Option<&SealedBundle<'_>>, desired: &[DesiredBinding]) -> StoreResult<Vec<Row>> {
    // In the order of their ids, so that two writers of the same bindings wait for each other at the first one.
    let rows: Vec<Raw> = sqlx::query_as(
        concat!(
            r#"with bundled as (
             insert into bundle (digest, sealed, exports) select $2, $3, $4 where $2 is not null
             on conflict (digest) do update set exports = excluded.exports where bundle.exports <> excluded.exports
         )
         insert into binding (id, dig, app, member, namespace, digest, present, fence, grants, share, rollback, delete_volumes, names, act_as)
         select id, dig, app, member, namespace, digest, state = 'present', fence, grants, share, coalesce(rollback, false),
             coalesce("deleteVolumes", false), coalesce(names, false), "actAs"
         from jsonb_to_recordset($1) as d (id uuid, dig jsonb, app text, member text, namespace text, digest text, state text, fence bigint,
             grants jsonb, share jsonb, rollback boolean, "deleteVolumes" boolean, names boolean, "actAs" text)
         where state = 'absent' or digest = $2 or exists (select from bundle where bundle.digest = d.digest)
         order by id
         on conflict (id) do update set dig = excluded.dig, app = excluded.app, member = excluded.member, namespace = excluded.namespace,
             digest = excluded.digest, present = excluded.present, fence = excluded.fence, grants = excluded.grants, share = excluded.share,
             rollback = excluded.rollback, names = excluded.names,
             delete_volumes = not excluded.present and (excluded.delete_volumes or binding.delete_volumes),
             act_as = case when excluded.present then excluded.act_as else binding.act_as end,
             gone = binding.gone and not excluded.present, kept = case when excluded.present then '{}' else binding.kept end,
             hooks = case when binding.gone and excluded.present then null else binding.hooks end,
             served = case when excluded.present then binding.served end,
             test = case when excluded.present and binding.digest = excluded.digest then binding.test end, updated_at = now()
         where binding.fence <= excluded.fence
         returning "#,
            columns!()
        ),
    )
    .bind(Json(desired))
    .bind(bundle.map(|bundle| bundle.digest))
    .bind(bundle.map(|bundle| &bundle.objects))
    .bind(bundle.is_some_and(|bundle| bundle.exports))
    .fetch_all(&mut *store.acquire().await?)
    .await?;
    Ok(rows.into_iter().map(Row::from).collect())
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
