//! Statements of operators: in this cluster nothing runs any more of what an operation moves.

use drover_api::scheduling::MemberKey;
use drover_store::StoreResult;
use sqlx::PgConnection;
use uuid::Uuid;

/// Records the statement of an operator. A second one for the same cluster changes nothing.
///
/// # Errors
/// The query failed.
pub async fn put(tx: &mut PgConnection, operation: Uuid, member: &MemberKey, reason: &str, by: &str) -> StoreResult<()> {
    let sql = "insert into force_fence (operation, member, reason, by) values ($1, $2, $3, $4) on conflict do nothing";
    sqlx::query(sql).bind(operation).bind(&member.0).bind(reason).bind(by).execute(tx).await?;
    Ok(())
}

/// Whether an operator has stated it of a cluster.
///
/// # Errors
/// The query failed.
pub async fn exists(db: &mut PgConnection, operation: Uuid, member: &MemberKey) -> StoreResult<bool> {
    let sql = "select exists (select from force_fence where operation = $1 and member = $2)";
    Ok(sqlx::query_scalar(sql).bind(operation).bind(&member.0).fetch_one(db).await?)
}
