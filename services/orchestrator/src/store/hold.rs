//! Holds: which workflow is changing a deployment intent group now. A workflow takes the holds of all its groups or of none,
//! and never waits for one.
//!
//! A hold is valid only while its workflow runs. A workflow that ended without dropping it (cancelled before its first step)
//! blocks no other workflow.

use std::collections::BTreeMap;

use drover_store::StoreResult;
use sqlx::PgConnection;
use uuid::Uuid;

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
    let taken = sqlx::query(
        "insert into hold (dig_id, workflow_id) select dig, $2 from unnest($1) dig order by dig
         on conflict (dig_id) do update set workflow_id = excluded.workflow_id, taken_at = excluded.taken_at
            where exists (select from workflow where id = hold.workflow_id and ended_at is not null)",
    )
    .bind(&digs)
    .bind(workflow)
    .execute(&mut *tx)
    .await?;
    if usize::try_from(taken.rows_affected()) == Ok(digs.len()) {
        return Ok(Ok(()));
    }
    let busy: Option<(Uuid, Uuid)> =
        sqlx::query_as("select dig_id, workflow_id from hold where dig_id = any($1) and workflow_id <> $2 order by dig_id limit 1")
            .bind(&digs)
            .bind(workflow)
            .fetch_optional(&mut *tx)
            .await?;
    let Some((dig, holder)) = busy else { return Ok(Ok(())) };
    drop_some(tx, workflow, &digs).await?;
    Ok(Err(Busy { dig, holder }))
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
