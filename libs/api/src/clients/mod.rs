//! What services may ask of each other: a client per service, a method per operation with the tag `peer`.
//!
//! The files beside this one are made from `openapi/*.json` by `cargo run -p xtask -- clients`, with the types of this crate.
//! By hand is only how their requests travel: a client carries a [`Link`]. Tokens, time limits and repeats are the business
//! of whoever makes the link, in Drover's processes `drover_service::Peer`. Feeds are not here: they have a reader of their own,
//! `drover_service::FeedReader`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use progenitor_client::{ClientHooks, OperationInfo};
use reqwest::{Request, Response};

pub use progenitor_client::{ClientInfo, Error, ResponseValue};

use crate::problem::ProblemDocument;

/// How requests get to one service.
pub trait Transport: Send + Sync + 'static {
    /// The service's name.
    fn peer(&self) -> &'static str;
    /// Sends a request of `operation` (its id in the document). An error's body must be a [`ProblemDocument`].
    fn send(&self, request: Request, operation: &'static str) -> Sent<'_>;
}

/// An answer on its way.
pub type Sent<'a> = Pin<Box<dyn Future<Output = reqwest::Result<Response>> + Send + 'a>>;

/// What a call of a client comes to.
pub type Called<T> = Result<ResponseValue<T>, Error<ProblemDocument>>;

/// A client's way to its service; cheap to clone.
#[derive(Clone)]
pub struct Link(Arc<dyn Transport>);

impl Link {
    /// The service at the other end.
    pub fn peer(&self) -> &'static str {
        self.0.peer()
    }
}

impl<T: Transport> From<T> for Link {
    fn from(transport: T) -> Self {
        Self(Arc::new(transport))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.peer())
    }
}

/// Any of the clients.
pub trait Client: ClientInfo<Link> + Sized {
    /// A client of the service at `base` (no slash at the end) that builds its requests with `http`.
    fn linked(base: &str, http: reqwest::Client, link: Link) -> Self;
}

macro_rules! clients {
    ($($service:ident),*) => {$(
        #[allow(missing_docs, clippy::unwrap_used, reason = "generated; what unwraps is a constructor that nobody calls")]
        pub mod $service;

        impl Client for $service::Client {
            fn linked(base: &str, http: reqwest::Client, link: Link) -> Self {
                Self::new_with_client(base, http, link)
            }
        }

        impl ClientHooks<Link> for $service::Client {
            async fn exec(&self, request: Request, info: &OperationInfo) -> reqwest::Result<Response> {
                self.inner.0.send(request, info.operation_id).await
            }
        }
    )*};
}

clients!(cluster_manager, migration, orchestrator, placement, resource_synchronizer);
