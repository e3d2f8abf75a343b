//! The agent of a cluster that Drover cannot reach. It connects to Drover, and Drover reaches the cluster's API server through that
//! connection: nothing has to be opened for it where the cluster is.
//!
//! ```text
//! invitation ─▶ a key of its own, a request ─▶ waits for an operator ─▶ certificate ─▶ link, kept open; renewed at two thirds of its life
//! ```
//! It does not look into what it carries, and it has no rights in the cluster: Drover speaks TLS with the API server itself.
//!
//! Invariants: the only address that it connects to besides the hub's is `--api-server`; a key never leaves the state directory; whatever is
//! on disk when it is killed, the next start goes on from there.

mod agent;
mod config;
pub mod drill;
mod hub;
mod state;

pub use agent::run;
pub use config::Config;
