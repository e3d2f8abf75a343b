//! The tables. All SQL of the service is here.

pub mod bindings;
pub mod bundles;
pub mod hooks;
pub mod inventory;
pub mod names;
pub mod tested;

use drover_store::{MigrationSet, Store, StoreResult};
use uuid::Uuid;

/// The migrations of the tables.
pub fn migrations() -> MigrationSet {
    MigrationSet::new("resource-synchronizer", sqlx::migrate!("../../migrations/resource-synchronizer"))
}

/// Id of this installation.
pub async fn hub(store: &Store) -> StoreResult<Uuid> {
    Ok(sqlx::query_scalar("select id from hub").fetch_one(&mut *store.acquire().await?).await?)
}
