//! What every Drover service keeps its state with: one Postgres schema and one role of its own.
//!
//! It is not a query layer. Services write SQL in their own `store/` rooms; this crate gives them a pool that is already in
//! the right schema ([`Store`]), errors they can name ([`StoreError`], [`ResultExt`]), columns nobody else can read
//! ([`SealKey`], [`Sealed`]), a time type that Postgres and jiff share ([`Timestamp`]) and, for `drover up` and for tests, a
//! server of their own ([`private_postgres`]).
//!
//! Invariant: a connection handed out by a [`Store`] resolves unqualified names in its service's schema and nowhere else.

mod error;
pub mod failpoint;
pub mod private_postgres;
mod schema;
mod seal;
mod time;

pub use error::{ResultExt, StoreError, StoreResult, retry_contended};
pub use schema::{MigrationSet, Store, StoreConfig, begin, works_after};
pub use seal::{Place, SealError, SealKey, Sealed};
pub use time::{Timestamp, now};

/// A transaction in a service's schema.
pub type Tx = sqlx::Transaction<'static, sqlx::Postgres>;
