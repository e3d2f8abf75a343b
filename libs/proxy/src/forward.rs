//! Forwards a request with the HTTP version that it came with (HTTP/1.1 or h2c), and streams the answer back. Upgraded connections are joined.
//!
//! Which destination a request may use is decided by the caller. Invariants: hop-by-hop headers are not forwarded; a request is sent a
//! second time only if the first attempt was certainly not begun, or if its method allows it (RFC 9110, 9.2.2).

use std::collections::HashMap;
use std::io;
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
use rustix::net::sockopt;
use tokio::net::TcpStream;

use crate::body::{AnswerBody, Held, RequestBody};

/// A pod that does not accept a connection within this time is treated as gone.
const CONNECT: Duration = Duration::from_secs(2);
/// A pod that takes in nothing of what it is sent for this long is treated as gone, with its node or its network, and its connection ends. An
/// answer may take as long as it likes: while both sides are silent, the kernel asks whether the other one is there.
const GONE: Duration = Duration::from_secs(30);
/// Time between two such questions; the kernel gives up after nine without an answer, or after [`GONE`].
const ASKED: Duration = Duration::from_secs(3);
/// Shorter than the default idle limits of servers (5 s and more), so that a connection is rarely closed just when it is used again.
const IDLE: Duration = Duration::from_secs(4);
/// Header that marks requests from an activator, which has counted them already.
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
pub enum ForwardError {
    /// Nobody read from the request, so that it can be offered to another destination.
    NotSent(String),
    /// It was sent, at least in part, and then the connection broke.
    BrokeOff(String),
}

/// Connections to destinations.
#[derive(Debug)]
pub struct Forwarder {
    http1: Client<HttpConnector, RequestBody>,
    /// One connection per destination carries all requests.
    http2: Mutex<HashMap<SocketAddr, http2::SendRequest<RequestBody>>>,
}

impl Default for Forwarder {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_keepalive(Some(ASKED));
        connector.set_keepalive_interval(Some(ASKED));
        connector.set_tcp_user_timeout(Some(GONE));
        let http1 = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(connector);
        Self { http1, http2: Mutex::default() }
    }
}

/// A request as it is forwarded. It can be offered to several destinations, one after the other.
#[derive(Debug)]
pub struct ForwardedRequest {
    parts: Parts,
    body: RequestBody,
    upgrade: Option<(HeaderValue, hyper::upgrade::OnUpgrade)>,
}

impl ForwardedRequest {
    /// Prepares the request of a client.
    pub fn new(mut request: Request<Incoming>, client: SocketAddr) -> Self {
        let protocol = request.headers().get(header::UPGRADE).filter(|_| request.version() == Version::HTTP_11).cloned();
        let upgrade = protocol.map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
        let (mut parts, body) = request.into_parts();
        let trailers = parts.headers.get(header::TE).is_some_and(|te| te == "trailers");
        strip(&mut parts.headers);
        if !trailers {
            parts.headers.remove(header::TE);
        }
        // All in one line, because many apps read only the first.
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

    /// Removes a header and returns it.
    pub fn take(&mut self, name: &HeaderName) -> Option<HeaderValue> {
        self.parts.headers.remove(name)
    }

    /// The headers as they are forwarded.
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// Whether it asks for another protocol on its connection (WebSocket).
    pub fn upgrades(&self) -> bool {
        self.upgrade.is_some()
    }

    /// The body of the request.
    pub fn body(&self) -> &RequestBody {
        &self.body
    }

    /// Chooses the HTTP version towards the destination; without it, it is the client's.
    pub fn speak(&mut self, version: Version) {
        self.parts.version = version;
    }

    /// Whether it does no harm if a destination gets it twice: the method says so, it has no body, and it asks for no other protocol.
    pub fn may_be_repeated(&self) -> bool {
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
            if let (None, Some(host)) = (&uri.authority, request.headers_mut().remove(header::HOST)) {
                uri.authority = Authority::try_from(host.as_bytes()).ok();
            }
        } else {
            *request.version_mut() = Version::HTTP_11;
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
    /// Sends the request to a destination.
    ///
    /// # Errors
    /// See [`ForwardError`].
    pub async fn send(&self, to: SocketAddr, forwarded: &ForwardedRequest) -> Result<Response<Incoming>, ForwardError> {
        match self.once(to, forwarded).await {
            // The destination may close an idle connection just when it is used again.
            Err(ForwardError::BrokeOff(_)) if forwarded.may_be_repeated() => self.once(to, forwarded).await,
            done => done,
        }
    }

    async fn once(&self, to: SocketAddr, forwarded: &ForwardedRequest) -> Result<Response<Incoming>, ForwardError> {
        let request = forwarded.request(to);
        if forwarded.parts.version == Version::HTTP_2 {
            let mut connection = self.http2_connection(to).await?;
            return connection.send_request(request).await.map_err(|error| failure(error.is_canceled(), forwarded, &error));
        }
        self.http1.request(request).await.map_err(|error| failure(error.is_connect(), forwarded, &error))
    }

    /// The HTTP/2 connection to a destination, without negotiation (prior knowledge).
    async fn http2_connection(&self, to: SocketAddr) -> Result<http2::SendRequest<RequestBody>, ForwardError> {
        let there = {
            let mut connections = self.http2.lock().unwrap_or_else(PoisonError::into_inner);
            connections.retain(|_, connection| !connection.is_closed());
            connections.get(&to).cloned()
        };
        if let Some(mut connection) = there
            && connection.ready().await.is_ok()
        {
            return Ok(connection);
        }
        let not_sent = |error: &dyn std::error::Error| ForwardError::NotSent(words(error));
        let stream = tokio::time::timeout(CONNECT, TcpStream::connect(to)).await.map_err(|late| not_sent(&late))?;
        let stream = stream.map_err(|error| not_sent(&error))?;
        stream.set_nodelay(true).map_err(|error| not_sent(&error))?;
        ends_with_its_pod(&stream).map_err(|error| not_sent(&error))?;
        let gone = u32::try_from(GONE.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&stream, gone).map_err(|error| not_sent(&error))?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(|error| not_sent(&error))?;
        tokio::spawn(connection); // ends with its last sender or when the other side closes; its requests get the errors
        self.http2.lock().unwrap_or_else(PoisonError::into_inner).insert(to, sender.clone());
        Ok(sender)
    }
}

/// Has a connection on which both sides are silent end when its pod is gone without a word. Otherwise what waits for an answer waits for ever.
///
/// # Errors
/// The socket does not allow it.
pub fn ends_with_its_pod(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ASKED)?;
    Ok(sockopt::set_tcp_keepintvl(stream, ASKED)?)
}

fn failure(surely_not_sent: bool, forwarded: &ForwardedRequest, error: &dyn std::error::Error) -> ForwardError {
    let words = words(error);
    if surely_not_sent && !forwarded.body.touched() { ForwardError::NotSent(words) } else { ForwardError::BrokeOff(words) }
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

/// The answer for the client, without hop-by-hop headers. It holds `held` until its end; an upgraded connection is copied in a task of its own.
pub fn answer<H: Send + 'static>(mut response: Response<Incoming>, forwarded: ForwardedRequest, held: H) -> Response<AnswerBody> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some((_, client)) = forwarded.upgrade
    {
        let app = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            if let (Ok(client), Ok(app)) = (client.await, app.await) {
                // Either side may end it; there is nobody to report an error to.
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(app)).await;
            }
            drop(held);
        });
        return response.map(|body| AnswerBody::of_app(body, None));
    }
    strip(response.headers_mut());
    let held: Held = Box::new(held);
    response.map(|body| AnswerBody::of_app(body, Some(held)))
}

/// Removes hop-by-hop headers.
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
