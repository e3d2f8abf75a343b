//! Rendered objects by digest. Never changed, so that writing one twice is harmless.

use drover_store::StoreResult;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::render::Rendered;

/// Keeps a bundle.
pub async fn put(tx: &mut PgConnection, rendered: &Rendered) -> StoreResult<()> {
    sqlx::query("insert into bundle (digest, objects) values ($1, $2) on conflict do nothing")
        .bind(&rendered.digest)
        .bind(Json(&rendered.objects))
        .execute(tx)
        .await?;
    Ok(())
}

/// Its objects.
pub async fn objects(tx: &mut PgConnection, digest: &str) -> StoreResult<Vec<Value>> {
    let Json(objects) =
        sqlx::query_scalar::<_, Json<Vec<Value>>>("select objects from bundle where digest = $1").bind(digest).fetch_one(tx).await?;
    Ok(objects)
}
