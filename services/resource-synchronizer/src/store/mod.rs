//! Tables. SQL is here and nowhere else.

pub mod bindings;
pub mod bundles;
pub mod inventory;

use drover_store::{Store, StoreResult};
use uuid::Uuid;

/// This installation's id.
pub async fn hub(store: &Store) -> StoreResult<Uuid> {
    Ok(sqlx::query_scalar("select id from hub").fetch_one(store.pool()).await?)
}
