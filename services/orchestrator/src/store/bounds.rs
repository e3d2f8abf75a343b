//! Shares of bounds that count for all members of an app: what each copy was told last, and what its member may still be acting upon.

use std::collections::HashMap;

use drover_autoscaling::shares::Share;
use drover_store::StoreResult;
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection};
use uuid::Uuid;

/// What the autoscalers of a copy were told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// Of the order; grows with each change.
    pub version: i64,
    pub policies: Vec<PolicyRow>,
    /// Whether the member has it.
    pub confirmed: bool,
}

/// What one autoscaler of a copy was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRow {
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// None: nothing yet.
    pub share: Option<Share>,
    /// The upper bound that it is to have in the end.
    pub aim: u32,
    /// The largest upper bound that the member may be acting upon.
    pub held: u32,
}

#[derive(FromRow)]
struct Row {
    binding: Uuid,
    version: i64,
    policies: Json<Vec<PolicyRow>>,
    confirmed: bool,
}

/// Whether it is this process's turn to divide: not while another one does, until the end of the transaction.
///
/// # Errors
/// The query failed.
pub async fn turn(tx: &mut PgConnection) -> StoreResult<bool> {
    Ok(sqlx::query_scalar("select pg_try_advisory_xact_lock(hashtext('bounds'), 0)").fetch_one(tx).await?)
}

/// What all copies were told, by binding.
///
/// # Errors
/// The query failed.
pub async fn all(tx: &mut PgConnection) -> StoreResult<HashMap<Uuid, Told>> {
    let rows: Vec<Row> = sqlx::query_as("select binding, version, policies, confirmed from bounds_share").fetch_all(tx).await?;
    Ok(told(rows))
}

/// What the copies of these groups were told, by binding.
///
/// # Errors
/// The query failed.
pub async fn of_digs(tx: &mut PgConnection, digs: &[Uuid]) -> StoreResult<HashMap<Uuid, Told>> {
    let sql = "select bounds_share.* from bounds_share join binding on binding.id = bounds_share.binding where dig_id = any($1)";
    let rows: Vec<Row> = sqlx::query_as(sql).bind(digs).fetch_all(tx).await?;
    Ok(told(rows))
}

fn told(rows: Vec<Row>) -> HashMap<Uuid, Told> {
    let of = |row: Row| (row.binding, Told { version: row.version, policies: row.policies.0, confirmed: row.confirmed });
    rows.into_iter().map(of).collect()
}

/// Records what a copy is told, before it is.
///
/// # Errors
/// The query failed.
pub async fn put(tx: &mut PgConnection, binding: Uuid, told: &Told) -> StoreResult<()> {
    sqlx::query(
        "insert into bounds_share (binding, version, policies, confirmed) values ($1, $2, $3, $4)
         on conflict (binding) do update set version = $2, policies = $3, confirmed = $4, changed_at = now()
         where (bounds_share.version, bounds_share.policies, bounds_share.confirmed) is distinct from ($2, $3, $4)",
    )
    .bind(binding)
    .bind(told.version)
    .bind(Json(&told.policies))
    .bind(told.confirmed)
    .execute(tx)
    .await?;
    Ok(())
}

/// Forgets what copies were told whose autoscalers have no bounds over all members any more.
///
/// # Errors
/// The query failed.
pub async fn delete(tx: &mut PgConnection, bindings: &[Uuid]) -> StoreResult<()> {
    sqlx::query("delete from bounds_share where binding = any($1)").bind(bindings).execute(tx).await?;
    Ok(())
}

/// The bundles of the copies that run or start.
///
/// # Errors
/// The query failed.
pub async fn digests(tx: &mut PgConnection) -> StoreResult<Vec<String>> {
    Ok(sqlx::query_scalar("select distinct digest from binding where role in ('target', 'current')").fetch_all(tx).await?)
}

/// The moves that are under way: the new copy and the one that it replaces.
///
/// # Errors
/// The query failed.
pub async fn replaced(tx: &mut PgConnection) -> StoreResult<HashMap<Uuid, Uuid>> {
    let sql = "select (one ->> 'new')::uuid, (one #>> '{old,id}')::uuid from workflow, jsonb_array_elements(state -> 'moves') one
        where kind = 'relocate' and ended_at is null and jsonb_typeof(state -> 'moves') = 'array'";
    let pairs: Vec<(Uuid, Uuid)> = sqlx::query_as(sql).fetch_all(tx).await?;
    Ok(pairs.into_iter().collect())
}
