//! Holds: which workflow is changing a deployment intent group now. A workflow takes the holds of all its groups or of none,
//! and never waits for one.
//!
//! A hold is valid only while its workflow runs. A workflow that ended without dropping it (cancelled before its first step)
//! blocks no other workflow.

use std::collections::BTreeMap;

use drover_store::StoreResult;
use sqlx::PgConnection;
use uuid::Uuid;

use super::deployment::Deployment;

/// The end of an insert of holds. A row that the workflow has already counts as inserted.
macro_rules! unless_held {
    () => {
        "on conflict (dig_id) do update set workflow_id = excluded.workflow_id,
            taken_at = case when hold.workflow_id = excluded.workflow_id then hold.taken_at else excluded.taken_at end
         where hold.workflow_id = excluded.workflow_id
            or exists (select from workflow where id = hold.workflow_id and ended_at is not null) "
    };
}

/// Takes the holds of these groups for a workflow. If another workflow has one of them, nothing is taken and the inner error
/// names that workflow.
///
/// # Errors
/// The query failed. That a group is busy is the inner result.
pub async fn take(tx: &mut PgConnection, workflow: Uuid, digs: &[Uuid]) -> StoreResult<Result<(), Busy>> {
    // Always in the same order: two workflows that insert the same rows must not deadlock.
    let mut digs = digs.to_vec();
    digs.sort_unstable();
    digs.dedup();
    let sql = concat!("insert into hold (dig_id, workflow_id) select dig, $2 from unnest($1) dig order by dig ", unless_held!());
    loop {
        let taken = sqlx::query(sql).bind(&digs).bind(workflow).execute(&mut *tx).await?;
        if usize::try_from(taken.rows_affected()) == Ok(digs.len()) {
            return Ok(Ok(()));
        }
        // Without another one: the workflow that had the hold has ended meanwhile.
        if let Some(busy) = other(&mut *tx, workflow, &digs).await? {
            drop_some(tx, workflow, &digs).await?;
            return Ok(Err(busy));
        }
    }
}

/// Locks the state of a group, then takes its hold, with one statement where that is possible: as [`super::deployment::load`] and [`take`].
///
/// # Errors
/// The query failed, or the stored state is unknown. That the group is busy is the inner result.
pub async fn take_locked(tx: &mut PgConnection, workflow: Uuid, dig: Uuid) -> StoreResult<(Deployment, Result<(), Busy>)> {
    let sql = concat!(
        "with before as (
            select state, revision from deployment where dig_id = $1 for update
        ), taken as (
            insert into hold (dig_id, workflow_id) select $1, $2 from (select count(*) from before) locked ",
        unless_held!(),
        "returning dig_id
        )
        select exists (select from taken), state, revision from (values (1)) one left join before on true"
    );
    loop {
        let (taken, state, revision): (bool, Option<String>, Option<i64>) =
            sqlx::query_as(sql).bind(dig).bind(workflow).fetch_one(&mut *tx).await?;
        let busy = if taken { None } else { other(&mut *tx, workflow, &[dig]).await? };
        if taken || busy.is_some() {
            return Ok((Deployment::of(state.zip(revision))?, busy.map_or(Ok(()), Err)));
        }
    }
}

/// Another workflow, which has not ended, that has one of these holds.
async fn other(tx: &mut PgConnection, workflow: Uuid, digs: &[Uuid]) -> StoreResult<Option<Busy>> {
    let busy: Option<(Uuid, Uuid)> = sqlx::query_as(
        "select dig_id, workflow_id from hold left join workflow on workflow.id = workflow_id
             where dig_id = any($1) and workflow_id <> $2 and ended_at is null order by dig_id limit 1",
    )
    .bind(digs)
    .bind(workflow)
    .fetch_optional(tx)
    .await?;
    Ok(busy.map(|(dig, holder)| Busy { dig, holder }))
}

/// A group that another operation is changing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the deployment intent group is held by operation {holder}")]
pub struct Busy {
    pub dig: Uuid,
    /// The operation to watch or cancel.
    pub holder: Uuid,
}

/// Drops the holds that a workflow has of these groups.
///
/// # Errors
/// The query failed.
pub async fn drop_some(tx: &mut PgConnection, workflow: Uuid, digs: &[Uuid]) -> StoreResult<()> {
    sqlx::query("delete from hold where workflow_id = $1 and dig_id = any($2)").bind(workflow).bind(digs).execute(tx).await?;
    Ok(())
}

/// Drops all holds of a workflow.
///
/// # Errors
/// The query failed.
pub async fn drop_all(tx: &mut PgConnection, workflow: Uuid) -> StoreResult<()> {
    // In the order in which `take` locks them: otherwise the two could deadlock.
    sqlx::query("delete from hold where dig_id in (select dig_id from hold where workflow_id = $1 order by dig_id for update)")
        .bind(workflow)
        .execute(tx)
        .await?;
    Ok(())
}

/// The running workflow that holds a group.
///
/// # Errors
/// The query failed.
pub async fn holder(tx: &mut PgConnection, dig: Uuid) -> StoreResult<Option<Uuid>> {
    Ok(sqlx::query_scalar(
        "select workflow_id from hold left join workflow on workflow.id = workflow_id where dig_id = $1 and ended_at is null",
    )
    .bind(dig)
    .fetch_optional(tx)
    .await?)
}

/// All valid holds: group and workflow.
///
/// # Errors
/// The query failed.
pub async fn all(tx: &mut PgConnection) -> StoreResult<Vec<(Uuid, Uuid)>> {
    Ok(sqlx::query_as("select dig_id, workflow_id from hold left join workflow on workflow.id = workflow_id where ended_at is null")
        .fetch_all(tx)
        .await?)
}

/// Groups that a plan must leave out because an operation is changing them (also the one that asks), each with the reason.
///
/// # Errors
/// The query failed.
pub async fn busy(tx: &mut PgConnection) -> StoreResult<BTreeMap<Uuid, String>> {
    Ok(all(tx).await?.into_iter().map(|(dig, holder)| (dig, format!("operation {holder} works on it"))).collect())
}

/// All valid holds with the paths of their groups: group, path, workflow; ordered by path.
///
/// # Errors
/// The query failed.
pub async fn all_named(tx: &mut PgConnection) -> StoreResult<Vec<(Uuid, String, Uuid)>> {
    Ok(sqlx::query_as(
        "select dig_id, path, workflow_id from hold join resource on resource.id = dig_id left join workflow on workflow.id = workflow_id
         where ended_at is null order by path",
    )
    .fetch_all(tx)
    .await?)
}

/// The running workflow that holds the group at `path`, or, if it ends in `/`, one of the groups below.
///
/// # Errors
/// The query failed.
pub async fn of_path(tx: &mut PgConnection, path: &str) -> StoreResult<Option<Uuid>> {
    let sql = "select workflow_id from hold join resource on resource.id = hold.dig_id left join workflow on workflow.id = workflow_id
        where ended_at is null and (resource.path = $1 or (right($1, 1) = '/' and starts_with(resource.path, $1))) limit 1";
    Ok(sqlx::query_scalar(sql).bind(path).fetch_optional(tx).await?)
}
