//! What services may ask of each other: a client per service, a method per operation with the tag `peer`.
//!
//! The files beside this one are made from `openapi/*.json` by `cargo run -p xtask -- clients`, with the types of `drover_api`. A client
//! is made from a [`Peer`] (`placement::Client::from(peer)`), which sends its requests. Feeds are not here: they have a reader of their
//! own, [`crate::FeedReader`].

use drover_api::problem::ProblemDocument;
use progenitor_client::{ClientHooks, OperationInfo};
use reqwest::{Request, Response};

pub use progenitor_client::{ClientInfo, Error, ResponseValue};

use crate::Peer;

/// The result of a client's method; see [`crate::Answer`].
pub type Called<T> = Result<ResponseValue<T>, Error<ProblemDocument>>;

macro_rules! clients {
    ($($service:ident),*) => {$(
        #[allow(missing_docs, clippy::unwrap_used, reason = "generated; what unwraps is a constructor that nobody calls")]
        pub mod $service;

        impl From<Peer> for $service::Client {
            fn from(peer: Peer) -> Self {
                Self::new_with_client(&peer.base(), crate::peer::client().clone(), peer)
            }
        }

        impl ClientHooks<Peer> for $service::Client {
            async fn exec(&self, request: Request, info: &OperationInfo) -> reqwest::Result<Response> {
                self.inner.send(request, info.operation_id).await
            }
        }
    )*};
}

clients!(cluster_manager, migration, orchestrator, placement, resource_synchronizer);
