//! Groups that are being replaced by another group of their composite app (EMCO's `migrate`).

use drover_store::StoreResult;
use sqlx::PgConnection;
use uuid::Uuid;

/// Records that `operation` instantiates the group that replaces `source`. False if `source` is being replaced already.
///
/// # Errors
/// The query failed.
pub async fn put(tx: &mut PgConnection, source: Uuid, target: Uuid, operation: Uuid) -> StoreResult<bool> {
    let sql = "insert into deployment_migration (source_id, target_id, operation) values ($1, $2, $3) on conflict do nothing";
    let inserted = sqlx::query(sql).bind(source).bind(target).bind(operation).execute(tx).await?;
    Ok(inserted.rows_affected() == 1)
}

/// The sources whose operations have ended, and whether these succeeded.
///
/// # Errors
/// The query failed.
pub async fn ended(connection: &mut PgConnection) -> StoreResult<Vec<(Uuid, bool)>> {
    let sql = "select source_id, status = 'done' from deployment_migration join workflow on workflow.id = operation
        where ended_at is not null";
    Ok(sqlx::query_as(sql).fetch_all(connection).await?)
}

/// Forgets a source.
///
/// # Errors
/// The query failed.
pub async fn delete(tx: &mut PgConnection, source: Uuid) -> StoreResult<()> {
    sqlx::query("delete from deployment_migration where source_id = $1").bind(source).execute(tx).await?;
    Ok(())
}
