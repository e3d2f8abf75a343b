//! Bundles.

use std::collections::HashMap;

use drover_store::{Store, StoreResult};
use serde_json::Value;
use sqlx::types::Json;

/// Stores objects under their digest; does nothing if the digest is stored.
pub async fn put(store: &Store, digest: &str, objects: &[Value]) -> StoreResult<()> {
    sqlx::query("insert into bundle (digest, objects) values ($1, $2) on conflict (digest) do nothing")
        .bind(digest)
        .bind(Json(objects))
        .execute(store.pool())
        .await?;
    Ok(())
}

/// Whether a bundle is stored.
pub async fn exists(store: &Store, digest: &str) -> StoreResult<bool> {
    Ok(sqlx::query_scalar("select exists (select from bundle where digest = $1)").bind(digest).fetch_one(store.pool()).await?)
}

/// The objects of a bundle; `None` if it is not stored.
pub async fn get(store: &Store, digest: &str) -> StoreResult<Option<Vec<Value>>> {
    let found: Option<Json<Vec<Value>>> =
        sqlx::query_scalar("select objects from bundle where digest = $1").bind(digest).fetch_optional(store.pool()).await?;
    Ok(found.map(|Json(objects)| objects))
}

/// The objects of these bundles, by digest; bundles that are not stored are left out.
pub async fn get_all(store: &Store, digests: impl IntoIterator<Item = &str>) -> StoreResult<HashMap<String, Vec<Value>>> {
    let digests: Vec<&str> = digests.into_iter().collect();
    let found: Vec<(String, Json<Vec<Value>>)> =
        sqlx::query_as("select digest, objects from bundle where digest = any($1)").bind(digests).fetch_all(store.pool()).await?;
    Ok(found.into_iter().map(|(digest, Json(objects))| (digest, objects)).collect())
}
