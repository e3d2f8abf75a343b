//! The ledger's log in Postgres. SQL lives here and in `sql/`, nowhere else.
//!
//! Reads are for starting, for following another process, and for people; no decision waits for one.

mod claims;
mod commit;
mod decisions;
pub mod packed;
mod requests;

use drover_store::{Store, StoreResult};

pub use claims::{News, find, heads, news};
pub use commit::{Committed, Entries, Pen};
pub use decisions::{decision, decisions, last_about, receipts};
pub use requests::Content;

/// Forgets tombstones and receipts that nobody can need any more.
pub async fn tidy(store: &Store) -> StoreResult<()> {
    sqlx::query(include_str!("sql/tidy.sql")).execute(store.pool()).await?;
    Ok(())
}
