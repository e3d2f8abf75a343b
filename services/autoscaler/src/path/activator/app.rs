//! One app in an activator: its requests wait for a pod, and are sent on as soon as a pod has a free slot.
//!
//! Invariant: an accepted request is answered by the app, unless the queue is full, it waits for too long, or the app breaks the connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drover_autoscaling::kpa::RequestReport;
use drover_proxy::body::AnswerBody;
use drover_proxy::forward::{ForwardError, ForwardedRequest, Forwarder, PROXIED, answer};
use drover_proxy::serve::{Handler, ListenerStage};
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::backends::Backends;
use super::catalogue::App;
use super::reporter::Reporter;
use crate::path::Key;
use crate::path::admit::admit;
use crate::path::guards::RequestGuards;
use crate::path::refusal::Refusal;
use crate::path::throttler::Throttler;

/// A first request, which is reported at once.
pub type Poke = (Key, RequestReport);

/// One app.
#[derive(Debug)]
pub struct ServedApp {
    key: Key,
    /// The waiting requests and the pods.
    pub throttler: Arc<Throttler>,
    /// The app's pods.
    pub backends: Arc<Backends>,
    /// Statistics of the app.
    pub reporter: Reporter,
    /// Stage of the app's listener.
    pub stage: watch::Sender<ListenerStage>,
    forwarder: Arc<Forwarder>,
    pokes: mpsc::Sender<Poke>,
    patience: Duration,
}

impl ServedApp {
    /// Creates an app without pods.
    pub fn new(key: Key, backends: Arc<Backends>, forwarder: Arc<Forwarder>, pokes: mpsc::Sender<Poke>, patience: Duration) -> Arc<Self> {
        let throttler = backends.throttler.clone();
        Arc::new(Self { key, throttler, backends, reporter: Reporter::new(), stage: watch::Sender::default(), forwarder, pokes, patience })
    }

    /// Applies the state of the API server. An app outside of the path asks its clients to go elsewhere.
    pub fn set(&self, app: App) {
        let to = if app.in_path { ListenerStage::Serving } else { ListenerStage::Leaving };
        self.stage.send_if_modified(|stage| *stage != ListenerStage::Closing && std::mem::replace(stage, to) != to);
        self.backends.set(app);
    }

    async fn deliver(&self, forwarded: ForwardedRequest, mut held: RequestGuards) -> Response<AnswerBody> {
        let until = Instant::now() + self.patience;
        loop {
            let permit = match admit(&self.throttler, forwarded.body(), until.saturating_duration_since(Instant::now())).await {
                Ok(permit) => permit,
                Err(Refusal::NoRoomInTime(_)) => return Refusal::NoRoomInTime(self.patience.as_secs()).response(),
                Err(refusal) => return refusal.response(),
            };
            let pod = permit.address();
            match self.forwarder.send(pod, &forwarded).await {
                Ok(response) => {
                    held.permit = Some(permit);
                    return answer(response, forwarded, held);
                }
                // The pod is gone, or does not serve yet; nothing of the request was read.
                Err(ForwardError::NotSent(why)) => {
                    tracing::debug!(app = %self.key, %pod, why, "a pod takes no requests");
                    self.backends.suspect(pod);
                }
                Err(broke_off) => return Refusal::from(broke_off).response(),
            }
        }
    }
}

impl Handler for ServedApp {
    async fn handle(self: Arc<Self>, request: Request<Incoming>, client: SocketAddr) -> Response<AnswerBody> {
        let mut forwarded = ForwardedRequest::new(request, client);
        forwarded.header(PROXIED, HeaderValue::from_static("activator"));
        let (under_way, first) = self.reporter.enter();
        if let Some(report) = first
            && self.pokes.try_send((self.key.clone(), report)).is_err()
        {
            self.reporter.report_rejected(); // too many first requests at once: this one is reported with its second
        }
        self.deliver(forwarded, RequestGuards { under_way: Some(under_way), permit: None }).await
    }
}
