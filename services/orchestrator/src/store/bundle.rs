//! Bundles: rendered objects by digest. A bundle never changes, so writing it twice has no effect.

use drover_store::StoreResult;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::render::Rendered;

/// Stores a bundle unless there is one of its digest.
///
/// # Errors
/// The query failed.
pub async fn put(tx: &mut PgConnection, rendered: &Rendered) -> StoreResult<()> {
    sqlx::query("insert into bundle (digest, objects) values ($1, $2) on conflict do nothing")
        .bind(&rendered.digest)
        .bind(Json(&rendered.objects))
        .execute(tx)
        .await?;
    Ok(())
}

/// The objects of a bundle.
///
/// # Errors
/// The query failed, or there is no bundle of that digest.
pub async fn objects(tx: &mut PgConnection, digest: &str) -> StoreResult<Vec<Value>> {
    let Json(objects) =
        sqlx::query_scalar::<_, Json<Vec<Value>>>("select objects from bundle where digest = $1").bind(digest).fetch_one(tx).await?;
    Ok(objects)
}
