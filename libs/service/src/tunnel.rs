//! Requests that end as a WebSocket: the handshake is passed on to the next server, and then the bytes in both directions. What they mean is
//! for the two ends.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

/// Longest time that a connection stays open.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The protocol to which a connection changes.
const WEBSOCKET: &str = "websocket";

/// The headers of a handshake, besides those of the connection.
const HANDSHAKE: [HeaderName; 3] = [header::SEC_WEBSOCKET_KEY, header::SEC_WEBSOCKET_VERSION, header::SEC_WEBSOCKET_PROTOCOL];

/// The handshake of a client that waits for the answer.
pub struct Handshake {
    headers: HeaderMap,
    client: OnUpgrade,
}

impl Handshake {
    /// The handshake of a request; `None` if it does not ask for a WebSocket.
    pub fn of<B>(request: &mut Request<B>) -> Option<Self> {
        let asks = request.headers().get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes()));
        if !asks || request.version() != Version::HTTP_11 {
            return None;
        }
        let mut headers = switch(WEBSOCKET);
        headers.extend(HANDSHAKE.into_iter().filter_map(|name| Some((name.clone(), request.headers().get(&name)?.clone()))));
        Some(Self { headers, client: hyper::upgrade::on(request) })
    }

    /// The headers with which the next server is asked.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The answer for the client, if the server has agreed; the connections are then joined until one of them ends, and `place` is kept for as
    /// long. Another answer is returned as it is.
    ///
    /// # Errors
    /// The answer of a server that has not agreed.
    pub fn join<B>(self, mut answer: Response<B>, place: impl Send + 'static) -> Result<Response<Body>, Response<B>> {
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(answer);
        }
        let server = hyper::upgrade::on(&mut answer);
        // It ends with either side, and at the latest with the process.
        tokio::spawn(async move {
            let _place = place;
            if let (Ok(client), Ok(server)) = (self.client.await, server.await) {
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                let copied = tokio::io::copy_bidirectional(&mut client, &mut server);
                // There is nobody to whom an error could be reported.
                let _ = tokio::time::timeout(LONGEST, copied).await;
            }
        });
        let mut switched = switched(WEBSOCKET);
        let told = [header::SEC_WEBSOCKET_ACCEPT, header::SEC_WEBSOCKET_PROTOCOL];
        switched.headers_mut().extend(told.into_iter().filter_map(|name| Some((name.clone(), answer.headers().get(&name)?.clone()))));
        Ok(switched)
    }
}

/// The headers of a request to change the protocol, and of the answer that agrees.
fn switch(protocol: &'static str) -> HeaderMap {
    let headers = [(header::CONNECTION, HeaderValue::from_static("Upgrade")), (header::UPGRADE, HeaderValue::from_static(protocol))];
    headers.into_iter().collect()
}

/// The answer after which the connection is a stream of this protocol.
pub fn switched(protocol: &'static str) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = switch(protocol);
    answer
}
