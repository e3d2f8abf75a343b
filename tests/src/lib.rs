//! End-to-end tests: all services in this process, three members, and requests only through the gateway's REST interface.
//!
//! Each scenario runs on three real control planes with simulated nodes (`make test` builds Kubernetes and sets `DROVER_KUBE_BIN`), and in
//! `make test-long` on kubesim too; where there is no Kubernetes, `cargo test -- --include-ignored simulated` runs it there.
//! [`System`] is the system under test: the services and their members. [`apps`] makes manifests; [`emco`] sends the requests that a
//! user's script would. What really runs is checked in the members directly.

pub mod apps;
pub mod browser;
mod database;
pub mod definitions;
pub mod emco;
pub mod gateways;
pub mod linked;
pub mod members;
pub mod processes;
mod ready;
pub mod stand_in;
mod system;
pub mod terminal;
pub mod volumes;

pub use members::{Backend, Member};
pub use ready::Witness;
pub use system::{API_TOKEN, SHORT, SOON_READY, System, failed, moves, succeeded};

/// Declares a scenario: an async function that gets a [`System`] becomes one test per backend. The system may have more flags.
#[macro_export]
macro_rules! scenario {
    ($name:ident) => {
        $crate::scenario!($name, &[]);
    };
    ($name:ident, $flags:expr) => {
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            #[ignore = "long: make test runs it on real control planes"]
            async fn simulated() {
                let system = $crate::System::with($crate::Backend::Simulated, $flags).await;
                super::$name(&system).await;
                system.end().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn real() {
                if !$crate::Backend::real_is_built() {
                    return;
                }
                let system = $crate::System::with($crate::Backend::Real, $flags).await;
                super::$name(&system).await;
                system.end().await;
            }
        }
    };
}
