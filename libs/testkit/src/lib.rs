//! What Drover's tests stand on: a database per test, waiting on conditions, networks that can be cut, servers on port 0.
//!
//! For tests only; nothing that ships depends on it. Nothing here sleeps a fixed time, and nothing it starts survives the test
//! process.

mod chaos;
mod disk;
mod eventually;
mod http;
mod killable;
mod needs;
mod postgres;

pub mod openapi;

pub use chaos::ChaosProxy;
pub use disk::SmallDisk;
pub use eventually::eventually;
pub use http::HttpServer;
pub use killable::KillablePostgres;
pub use needs::needs;
pub use postgres::{TestDb, prepared_db, test_db};
