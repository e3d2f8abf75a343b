//! Sends a request on, over HTTP/1.1 or h2c as it came, and brings the answer back as a stream; upgraded connections are joined.
//!
//! Not here: who may be sent where ([`super::room`]), counting. Invariants: headers of one hop stay on it; a request is sent a second time
//! only if it is certain that the first was not begun, or if its method allows it (RFC 9110, 9.2.2).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::body::{AnswerBody, Held, RequestBody};

/// A pod that does not even accept within this is not there.
const CONNECT: Duration = Duration::from_secs(2);
/// Shorter than the idle limits that servers have by default (5 s and more), so that a connection is rarely closed as it is used again.
const IDLE: Duration = Duration::from_secs(4);
/// Marks what an activator sends: it has counted it.
pub const PROXIED: HeaderName = HeaderName::from_static("drover-proxied");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT, // answered here: the body is read here
];

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// Nobody read of it: it can be offered to another.
    NotSent(String),
    /// It was sent, at least in part, and the other side went away.
    BrokeOff(String),
}

/// Connections to those behind.
#[derive(Debug)]
pub struct Forwarder {
    one: Client<HttpConnector, RequestBody>,
    /// One connection each carries all requests.
    two: Mutex<HashMap<SocketAddr, http2::SendRequest<RequestBody>>>,
}

impl Default for Forwarder {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        let one = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(connector);
        Self { one, two: Mutex::default() }
    }
}

/// A request as it goes on; can be sent to one after the other.
#[derive(Debug)]
pub struct Onward {
    parts: Parts,
    body: RequestBody,
    upgrade: Option<(HeaderValue, hyper::upgrade::OnUpgrade)>,
}

impl Onward {
    /// Prepares a request of `client`.
    pub fn new(mut request: Request<Incoming>, client: SocketAddr) -> Self {
        let protocol = request.headers().get(header::UPGRADE).filter(|_| request.version() == Version::HTTP_11).cloned();
        let upgrade = protocol.map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
        let (mut parts, body) = request.into_parts();
        let trailers = parts.headers.get(header::TE).is_some_and(|te| te == "trailers");
        strip(&mut parts.headers);
        if !trailers {
            parts.headers.remove(header::TE);
        }
        // One line: many an app reads only the first.
        let before = parts.headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let chain: Vec<String> = before.map(ToOwned::to_owned).chain([client.ip().to_canonical().to_string()]).collect();
        if let Ok(chain) = HeaderValue::from_str(&chain.join(", ")) {
            parts.headers.insert(FORWARDED_FOR, chain);
        }
        Self { parts, body: RequestBody::new(body), upgrade }
    }

    /// Adds or replaces a header.
    pub fn header(&mut self, name: HeaderName, value: HeaderValue) {
        self.parts.headers.insert(name, value);
    }

    /// Takes a header away.
    pub fn take(&mut self, name: &HeaderName) -> Option<HeaderValue> {
        self.parts.headers.remove(name)
    }

    /// Its body.
    pub fn body(&self) -> &RequestBody {
        &self.body
    }

    fn may_be_repeated(&self) -> bool {
        self.parts.method.is_idempotent() && self.body.is_empty() && self.upgrade.is_none()
    }

    fn request(&self, to: SocketAddr) -> Request<RequestBody> {
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = self.parts.method.clone();
        *request.headers_mut() = self.parts.headers.clone();
        let mut uri = self.parts.uri.clone().into_parts();
        uri.scheme = Some(Scheme::HTTP);
        if self.parts.version == Version::HTTP_2 {
            *request.version_mut() = Version::HTTP_2; // the authority is what the client asked for
        } else {
            if let (Some(asked), false) = (&uri.authority, request.headers().contains_key(header::HOST))
                && let Ok(asked) = HeaderValue::from_str(asked.as_str())
            {
                request.headers_mut().insert(header::HOST, asked);
            }
            uri.authority = Authority::try_from(to.to_string()).ok();
            if let Some((protocol, _)) = &self.upgrade {
                request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                request.headers_mut().insert(header::UPGRADE, protocol.clone());
            }
        }
        *request.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
        request
    }
}

impl Forwarder {
    /// Sends it to a place.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn send(&self, to: SocketAddr, onward: &Onward) -> Result<Response<Incoming>, Failure> {
        match self.once(to, onward).await {
            // The other side closes connections that it thinks idle, now and then as they are used again.
            Err(Failure::BrokeOff(_)) if onward.may_be_repeated() => self.once(to, onward).await,
            done => done,
        }
    }

    async fn once(&self, to: SocketAddr, onward: &Onward) -> Result<Response<Incoming>, Failure> {
        let request = onward.request(to);
        if onward.parts.version == Version::HTTP_2 {
            let mut connection = self.second(to).await?;
            return connection.send_request(request).await.map_err(|error| failure(error.is_canceled(), onward, &error));
        }
        self.one.request(request).await.map_err(|error| failure(error.is_connect(), onward, &error))
    }

    /// An HTTP/2 connection, without negotiation (prior knowledge).
    async fn second(&self, to: SocketAddr) -> Result<http2::SendRequest<RequestBody>, Failure> {
        let there = {
            let mut two = self.two.lock().unwrap_or_else(PoisonError::into_inner);
            two.retain(|_, connection| !connection.is_closed());
            two.get(&to).cloned()
        };
        if let Some(mut connection) = there
            && connection.ready().await.is_ok()
        {
            return Ok(connection);
        }
        let not_sent = |error: &dyn std::error::Error| Failure::NotSent(words(error));
        let stream = tokio::time::timeout(CONNECT, TcpStream::connect(to)).await.map_err(|late| not_sent(&late))?;
        let stream = stream.map_err(|error| not_sent(&error))?;
        stream.set_nodelay(true).map_err(|error| not_sent(&error))?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(|error| not_sent(&error))?;
        tokio::spawn(connection); // ends with its last sender, or with the other side; its requests hear of errors
        self.two.lock().unwrap_or_else(PoisonError::into_inner).insert(to, sender.clone());
        Ok(sender)
    }
}

fn failure(surely_not_sent: bool, onward: &Onward, error: &dyn std::error::Error) -> Failure {
    let words = words(error);
    if surely_not_sent && !onward.body.touched() { Failure::NotSent(words) } else { Failure::BrokeOff(words) }
}

/// An error with its causes.
fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The answer for the client: without headers of the hop, holding what it holds to its end; an upgrade is carried on beside it.
pub fn answer(mut response: Response<Incoming>, onward: Onward, held: Held) -> Response<AnswerBody> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some((_, client)) = onward.upgrade
    {
        let app = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            if let (Ok(client), Ok(app)) = (client.await, app.await) {
                // Whichever side ends it ends it; there is nobody left to tell.
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(app)).await;
            }
            drop(held);
        });
        return response.map(|body| AnswerBody::of_app(body, Held::default()));
    }
    strip(response.headers_mut());
    response.map(|body| AnswerBody::of_app(body, held))
}

/// Takes away what is said to the next hop only.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in HOP.into_iter().chain(named) {
        headers.remove(name);
    }
}
