//! What services may ask of each other: a client per service, a method per operation with the tag `peer`.
//!
//! The files beside this one are made from `openapi/*.json` by `cargo run -p xtask -- clients`, with the types of `drover_api`. A client
//! is made from a [`Peer`] (`placement::Client::from(peer)`), which sends its requests. Feeds are not here: they have a reader of their
//! own, [`crate::FeedReader`].

use drover_api::problem::ProblemDocument;
use progenitor_client::{ClientHooks, OperationInfo};
use reqwest::{Request, Response};

pub use progenitor_client::{ClientInfo, Error, ResponseValue};

use crate::peer::{Peer, PeerError, found};
use crate::problem::chain;

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

/// Turns the result of a generated client's method into that of this crate.
pub trait Answer<T> {
    /// The answer of the service that `client` calls.
    ///
    /// # Errors
    /// See [`PeerError`].
    fn answer(self, client: &impl ClientInfo<Peer>) -> Result<T, PeerError>;
    /// The answer, or none if the service answered 404.
    ///
    /// # Errors
    /// See [`PeerError`].
    fn found(self, client: &impl ClientInfo<Peer>) -> Result<Option<T>, PeerError>;
}

impl<T> Answer<T> for Called<T> {
    fn answer(self, client: &impl ClientInfo<Peer>) -> Result<T, PeerError> {
        self.map(ResponseValue::into_inner).map_err(|failure| error(client.inner().name(), failure))
    }
    fn found(self, client: &impl ClientInfo<Peer>) -> Result<Option<T>, PeerError> {
        found(self.answer(client))
    }
}

/// What a generated client's error means.
fn error(peer: &'static str, error: Error<ProblemDocument>) -> PeerError {
    match error {
        Error::CommunicationError(error) if error.is_builder() => PeerError::Undecodable { peer, detail: chain(&error) },
        Error::CommunicationError(error) | Error::ResponseBodyError(error) | Error::InvalidUpgrade(error) => {
            PeerError::Unavailable { peer, detail: chain(&error.without_url()) }
        }
        Error::ErrorResponse(answer) => PeerError::Refused { peer, status: answer.status(), problem: Box::new(answer.into_inner()) },
        Error::InvalidResponsePayload(_, error) => PeerError::Undecodable { peer, detail: error.to_string() },
        Error::UnexpectedResponse(response) => {
            PeerError::Undecodable { peer, detail: format!("the status {} is not in it", response.status()) }
        }
        Error::InvalidRequest(detail) | Error::Custom(detail) => PeerError::Undecodable { peer, detail },
    }
}
