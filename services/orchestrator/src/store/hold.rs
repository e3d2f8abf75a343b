//! One writer per deployment intent group: taken for all groups of a workflow or none, never waited for.
//!
//! A hold counts as long as its workflow runs. One that ended before it could let go (cancelled before its first step)
//! holds nobody up.

use std::collections::BTreeMap;

use drover_store::StoreResult;
use sqlx::PgConnection;
use uuid::Uuid;

/// Takes the groups for a workflow. A busy one: nothing is taken, and its holder is the answer.
pub async fn take(tx: &mut PgConnection, workflow: Uuid, digs: &[Uuid]) -> StoreResult<Result<(), Busy>> {
    // In one order, so that two workflows never wait for each other crosswise.
    let mut digs = digs.to_vec();
    digs.sort_unstable();
    digs.dedup();
    sqlx::query(
        "delete from hold using workflow where hold.dig_id = any($1) and workflow.id = hold.workflow_id and workflow.ended_at is not null",
    )
    .bind(&digs)
    .execute(&mut *tx)
    .await?;
    sqlx::query("insert into hold (dig_id, workflow_id) select dig, $2 from unnest($1) dig order by dig on conflict (dig_id) do nothing")
        .bind(&digs)
        .bind(workflow)
        .execute(&mut *tx)
        .await?;
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

/// A group that somebody else works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the deployment intent group is held by operation {holder}")]
pub struct Busy {
    /// The group.
    pub dig: Uuid,
    /// The operation to watch or cancel.
    pub holder: Uuid,
}

/// Drops a workflow's hold of these groups.
pub async fn drop_some(tx: &mut PgConnection, workflow: Uuid, digs: &[Uuid]) -> StoreResult<()> {
    sqlx::query("delete from hold where workflow_id = $1 and dig_id = any($2)").bind(workflow).bind(digs).execute(tx).await?;
    Ok(())
}

/// Drops every hold of a workflow.
pub async fn drop_all(tx: &mut PgConnection, workflow: Uuid) -> StoreResult<()> {
    sqlx::query("delete from hold where workflow_id = $1").bind(workflow).execute(tx).await?;
    Ok(())
}

/// Who holds a group.
pub async fn holder(tx: &mut PgConnection, dig: Uuid) -> StoreResult<Option<Uuid>> {
    Ok(sqlx::query_scalar(
        "select workflow_id from hold left join workflow on workflow.id = workflow_id where dig_id = $1 and ended_at is null",
    )
    .bind(dig)
    .fetch_optional(tx)
    .await?)
}

/// All groups that running workflows hold, with these.
pub async fn all(tx: &mut PgConnection) -> StoreResult<Vec<(Uuid, Uuid)>> {
    Ok(sqlx::query_as("select dig_id, workflow_id from hold left join workflow on workflow.id = workflow_id where ended_at is null")
        .fetch_all(tx)
        .await?)
}

/// Groups that somebody works on, whoever asks among them, and the words for it: no use to plan with them.
pub async fn busy(tx: &mut PgConnection) -> StoreResult<BTreeMap<Uuid, String>> {
    Ok(all(tx).await?.into_iter().map(|(dig, holder)| (dig, format!("operation {holder} works on it"))).collect())
}

/// The same with the groups' paths.
pub async fn all_named(tx: &mut PgConnection) -> StoreResult<Vec<(Uuid, String, Uuid)>> {
    Ok(sqlx::query_as(
        "select dig_id, path, workflow_id from hold join resource on resource.id = dig_id left join workflow on workflow.id = workflow_id
         where ended_at is null order by path",
    )
    .fetch_all(tx)
    .await?)
}
