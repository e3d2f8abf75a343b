//! End-to-end tests: the whole stack in this process, three members, and nothing but the gateway's REST.
//!
//! Each scenario runs on kubesim and, where `DROVER_KUBE_BIN` says that Kubernetes has been built (`make test` does), on three
//! real control planes with simulated nodes. [`World`] is a stack and its members; [`apps`] makes manifests; [`emco`] speaks
//! EMCO's REST as a script would. The members are also looked at directly, which is the only way to know what really runs.

pub mod apps;
pub mod emco;
pub mod members;
pub mod processes;
mod ready;
mod world;

pub use members::{Backend, Member};
pub use ready::Witness;
pub use world::{World, failed, moves, succeeded};

/// Declares a scenario: an async function of a [`World`] becomes one test per backend.
#[macro_export]
macro_rules! scenario {
    ($name:ident) => {
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn simulated() {
                let world = $crate::World::new($crate::Backend::Simulated).await;
                super::$name(&world).await;
                world.end().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn real() {
                if !$crate::Backend::real_is_built() {
                    return;
                }
                let world = $crate::World::new($crate::Backend::Real).await;
                super::$name(&world).await;
                world.end().await;
            }
        }
    };
}
