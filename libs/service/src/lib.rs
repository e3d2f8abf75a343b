//! What each Drover process is made of: configuration, problem+json, limits, telemetry, health, supervised tasks, feeds,
//! peer calls, shutdown.
//!
//! It knows nothing of clusters, plans or documents. The invariant: whatever goes wrong in a request (a rejection, an
//! unknown path, a panic, a timeout), the client gets `application/problem+json` with a code of [`codes`], and nothing
//! that is internal leaves the process.
//!
//! A service is put together like this:
//! ```ignore
//! pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
//!     let common = common.scoped("placement");
//!     let app = App::connect(&config, &common).await?;              // store; tasks by common.spawn(name, on_failure, start)
//!     common.readiness.check("database", { let app = app.clone(); move || app.clone().ping() });
//!     let listener = service::bind(config.listen, &common).await?;
//!     Ok(service::serve(listener, service::router(routes().with_state(app), &common), &common))
//! }
//! ```

mod access;
pub mod clients;
pub mod codes;
pub mod config;
mod connections;
pub mod environment;
pub mod extract;
pub mod feed;
pub mod health;
pub mod metrics;
mod middleware;
pub mod openapi;
pub mod peer;
pub mod principal;
pub mod problem;
pub mod prometheus;
mod reserved;
mod router;
mod sealing;
mod serve;
mod sessions;
pub mod telemetry;
pub mod tls;
pub mod tunnel;
mod understood;

pub use drover_api::problem::ProblemDocument;

pub use clients::Answer;
pub use codes::Code;
pub use config::{Common, Peers};
pub use connections::ConnectionLimits;
pub use drover_tasks::{self as tasks, OnFailure, TaskHandle, Tasks, backoff};
pub use extract::{BodyLimit, Json, Path, Query, Raw};
pub use feed::{FeedBatch, FeedContact, FeedHub, FeedReader};
pub use middleware::{request_id, to_its_end};
pub use peer::{Peer, PeerError, segment};
pub use principal::{Identities, Identity, Principal};
pub use problem::Problem;
pub use reserved::Reserved;
pub use router::{router, router_with_document};
pub use sealing::SealSettings;
pub use serve::{Running, bind, run, serve, signalled};
pub use sessions::{LINK_LIFETIME, Sessions};
pub use tls::Tls;
pub use understood::{DryRun, asks_dry_run};
