//! Stand-ins for the processes of pods: an address of its own on loopback that answers on the ports of the containers.
//!
//! Only in clusters that ask for it. A stand-in begins when its pod runs and ends, with all its connections, when the pod is gone. It
//! speaks HTTP/1.1 and HTTP/2 without TLS:
//!
//! | request | answer |
//! |---|---|
//! | any | the pod's name, in the header `x-pod` too; a request body is read to its end and counted |
//! | with `x-id: ID` | the same, and in the header `x-times` how often pods of this process have got this ID |
//! | with `?ms=2000` | the same after so many milliseconds |
//! | with `Upgrade` | 101, then every byte is sent back |
//! | `content-type: application/grpc` | the body as it comes, then the trailer `grpc-status: 0` |

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::object::{self, list, number};

const POD: HeaderName = HeaderName::from_static("x-pod");
const ID: HeaderName = HeaderName::from_static("x-id");
const TIMES: HeaderName = HeaderName::from_static("x-times");
/// How many ids are remembered; when there are more, all are forgotten.
const REMEMBERED: usize = 100_000;
/// How many addresses this process has given out, from which the next one follows.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// How often each id came.
static SEEN: LazyLock<Mutex<HashMap<Vec<u8>, u32>>> = LazyLock::new(Mutex::default);

/// The process of a pod. Dropping it ends it and its connections.
#[derive(Debug)]
pub struct StandIn {
    pub address: Ipv4Addr,
    listeners: Vec<JoinHandle<()>>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.listeners.iter().for_each(JoinHandle::abort);
    }
}

impl StandIn {
    /// Starts one for a pod; none if no address is free.
    pub fn start(pod: &Value) -> Option<Self> {
        (0..16).find_map(|_| {
            let mut process = Self::silent();
            process.listen(pod).then_some(process)
        })
    }

    /// Begins to answer on all ports of the pod's containers; false if one of them is in use.
    pub fn listen(&mut self, pod: &Value) -> bool {
        let ports = list(pod, "/spec/containers").iter().flat_map(|container| list(container, "/ports"));
        for port in ports.filter_map(|port| u16::try_from(number(port, "/containerPort")?).ok()) {
            let open = std::net::TcpListener::bind((self.address, port)).and_then(|open| open.set_nonblocking(true).map(|()| open));
            match open.and_then(TcpListener::from_std) {
                Ok(open) => self.listeners.push(tokio::spawn(stand_in(open, object::name(pod).to_owned()))),
                Err(error) => {
                    tracing::debug!(address = %self.address, port, %error, "a stand-in cannot listen");
                    return false;
                }
            }
        }
        true
    }

    /// One that answers nothing.
    pub fn silent() -> Self {
        Self { address: address(), listeners: Vec::new() }
    }
}

/// An address that this process has not used for long. Processes differ by their id.
fn address() -> Ipv4Addr {
    let at = NEXT.fetch_add(1, Ordering::Relaxed) % (64 * 254);
    let [.., high, low] = std::process::id().to_be_bytes();
    let second = 64 + (high.wrapping_mul(31) ^ low) % 128;
    Ipv4Addr::new(127, second, u8::try_from(at / 254).unwrap_or(0), u8::try_from(1 + at % 254).unwrap_or(1))
}

/// Answers for the pod of this name until it is dropped.
pub async fn stand_in(listener: TcpListener, name: String) {
    // The set is dropped with this task, which ends the connections.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else { continue };
        let _ = stream.set_nodelay(true);
        let name = name.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, name.clone()));
            // An error means that the client went away.
            let _ = Builder::new(TokioExecutor::new()).serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(mut request: Request<Incoming>, name: String) -> Result<Response<Answer>, Infallible> {
    let query = request.uri().query().unwrap_or_default();
    let wait = query.split('&').find_map(|pair| pair.strip_prefix("ms=")?.parse().ok());
    if let Some(wait) = wait {
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
    let mut response = Response::new(Answer::default());
    if let Ok(name) = HeaderValue::from_str(&name) {
        response.headers_mut().insert(POD, name);
    }
    if let Some(id) = request.headers().get(ID) {
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= REMEMBERED {
            seen.clear();
        }
        let times = seen.entry(id.as_bytes().to_vec()).or_default();
        *times += 1;
        response.headers_mut().insert(TIMES, HeaderValue::from(*times));
    }
    if let Some(protocol) = request.headers().get(header::UPGRADE).cloned() {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let Ok(upgraded) = upgrade.await else { return };
            let (mut from, mut to) = tokio::io::split(TokioIo::new(upgraded));
            // An error means that the client went away.
            let _ = tokio::io::copy(&mut from, &mut to).await;
        });
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(header::UPGRADE, protocol);
        return Ok(response);
    }
    if request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response.headers_mut().insert(header::TRAILER, HeaderValue::from_static("grpc-status"));
        *response.body_mut() = Answer::Echo(request.into_body());
        return Ok(response);
    }
    let mut body = request.into_body();
    let mut bytes = 0;
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(frame) = frame else { break };
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    *response.body_mut() = Answer::Text(Some(Bytes::from(format!("{name} {bytes}\n"))));
    Ok(response)
}

/// The body of an answer.
enum Answer {
    Text(Option<Bytes>),
    Echo(Incoming),
    Done,
}

impl Default for Answer {
    fn default() -> Self {
        Self::Text(None)
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Done => Poll::Ready(None),
            Self::Echo(body) => match ready!(Pin::new(body).poll_frame(context)) {
                Some(frame) => Poll::Ready(Some(frame)),
                None => {
                    *self = Self::Done;
                    let mut trailers = HeaderMap::new();
                    trailers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
                    Poll::Ready(Some(Ok(Frame::trailers(trailers))))
                }
            },
        }
    }
}
