//! The ledger's log in Postgres. All SQL is here and in `sql/`.
//!
//! It is read at the start, to follow other processes, and for users; no decision waits for a read.

mod claims;
mod commit;
mod decisions;
pub mod packed;
mod requests;

use drover_store::{Store, StoreResult};

pub use claims::{LedgerNews, find, heads, news};
pub use commit::{Committed, Entries, LogConnection};
pub use decisions::{decision, decisions, last_about, receipts};
pub use requests::Content;

/// Deletes tombstones and receipts older than a week.
///
/// # Errors
/// The store fails.
pub async fn tidy(store: &Store) -> StoreResult<()> {
    sqlx::query(include_str!("sql/tidy.sql")).execute(&mut *store.acquire().await?).await?;
    Ok(())
}
