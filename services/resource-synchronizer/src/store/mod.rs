//! The tables. All SQL of the service is here.

pub mod bindings;
pub mod bundles;
pub mod hooks;
pub mod inventory;
pub mod names;
pub mod tested;

use drover_store::{Store, StoreResult};
use uuid::Uuid;

/// Id of this installation.
pub async fn hub(store: &Store) -> StoreResult<Uuid> {
    Ok(sqlx::query_scalar("select id from hub").fetch_one(&mut *store.acquire().await?).await?)
}
