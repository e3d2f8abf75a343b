//! How Drover's services keep their state in Postgres: each in a schema of its own, with a role of its own.
//!
//! This is not a query layer: services write their SQL themselves. The crate gives them connections in the right schema
//! ([`Store`]), errors by cause and constraint ([`StoreError`], [`ResultExt`]), encrypted columns ([`SealKey`], [`Sealed`]), a time type for
//! Postgres and jiff ([`Timestamp`]), failpoints for tests ([`failpoint`]) and, for `drover up` and tests, a private Postgres server
//! ([`private_postgres`]).
//!
//! Invariant: a connection from a [`Store`] resolves unqualified names in the schema of its service and nowhere else.

mod error;
pub mod failpoint;
mod pool;
pub mod private_postgres;
mod reseal;
mod schema;
mod seal;
mod time;

pub use error::{ResultExt, StoreError, StoreResult, retry_contended};
pub use pool::{PooledConnection, Tx, works_after};
pub use reseal::{Derived, SealedTable};
pub use schema::{MigrationSet, Store, StoreConfig};
pub use seal::{Place, SealError, SealKey, Sealed, hex};
pub use time::{Timestamp, now};
