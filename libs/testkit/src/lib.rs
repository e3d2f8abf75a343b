//! Helpers for Drover's tests: a database per test, waiting for conditions, connections that can be cut, servers on free ports,
//! images for real kubelets.
//!
//! It is for tests only; no product code depends on it. Nothing here waits for a fixed time, and everything that it starts ends with the
//! test process.

mod chaos;
mod crds;
mod disk;
mod eventually;
mod http;
mod image;
mod killable;
mod needs;
mod ports;
mod postgres;

pub mod openapi;

pub use chaos::ChaosProxy;
pub use crds::crds;
pub use disk::SmallDisk;
pub use eventually::eventually;
pub use http::HttpServer;
pub use image::Image;
pub use killable::KillablePostgres;
pub use needs::needs;
pub use ports::free_port;
pub use postgres::{TestDb, prepared_cluster, prepared_db, seal_key, test_db, truncate};
