//! One app as an activator serves it: requests wait here for a pod, and go on as soon as one has room.
//!
//! Invariant: a request that was taken in is answered by the app, unless the line is full, its patience ends, or the app breaks off.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use drover_autoscaling::kpa::RequestReport;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::backends::Backends;
use super::catalogue::App;
use super::reporter::Reporter;
use crate::path::Key;
use crate::path::admit::admit;
use crate::path::body::{AnswerBody, Held};
use crate::path::forward::{Failure, Forwarder, Onward, PROXIED, answer};
use crate::path::refusal::Refusal;
use crate::path::room::Room;
use crate::path::serve::{Handler, Stage};

/// Requests that wait for one app (Knative's revision throttler).
const LINE: usize = 10_000;

/// A first request, to be told at once.
pub type Poke = (Key, RequestReport);

/// One app.
#[derive(Debug)]
pub struct Served {
    key: Key,
    /// Those who wait, and the pods.
    pub room: Arc<Room>,
    /// Which pods there are.
    pub backends: Arc<Backends>,
    /// What is said about it.
    pub reporter: Reporter,
    /// How its listener stands.
    pub stage: watch::Sender<Stage>,
    forwarder: Arc<Forwarder>,
    pokes: mpsc::Sender<Poke>,
    patience: Duration,
}

impl Served {
    /// Without pods.
    pub fn new(key: Key, me: IpAddr, forwarder: Arc<Forwarder>, pokes: mpsc::Sender<Poke>, patience: Duration) -> Arc<Self> {
        let room = Room::new(LINE);
        let backends = Backends::new(room.clone(), me);
        Arc::new(Self { key, room, backends, reporter: Reporter::new(), stage: watch::Sender::default(), forwarder, pokes, patience })
    }

    /// What the API server says now. Out of the path, clients are asked to go; back in it, no longer.
    pub fn set(&self, app: App) {
        let to = if app.in_path { Stage::Serving } else { Stage::Leaving };
        self.stage.send_if_modified(|stage| *stage != Stage::Closing && std::mem::replace(stage, to) != to);
        self.backends.set(app);
    }

    async fn deliver(&self, onward: Onward, mut held: Held) -> Response<AnswerBody> {
        let until = Instant::now() + self.patience;
        loop {
            let lease = match admit(&self.room, onward.body(), until.saturating_duration_since(Instant::now())).await {
                Ok(lease) => lease,
                Err(Refusal::NoRoomInTime(_)) => return Refusal::NoRoomInTime(self.patience.as_secs()).response(),
                Err(refusal) => return refusal.response(),
            };
            let pod = lease.address();
            match self.forwarder.send(pod, &onward).await {
                Ok(response) => {
                    held.lease = Some(lease);
                    return answer(response, onward, held);
                }
                // The pod is gone, or not there yet; nothing of the request was read.
                Err(Failure::NotSent(why)) => {
                    tracing::debug!(app = %self.key, %pod, why, "a pod takes no requests");
                    self.backends.suspect(pod);
                }
                Err(broke_off) => return Refusal::from(broke_off).response(),
            }
        }
    }
}

impl Handler for Served {
    async fn handle(self: Arc<Self>, request: Request<Incoming>, client: SocketAddr) -> Response<AnswerBody> {
        let mut onward = Onward::new(request, client);
        onward.header(PROXIED, HeaderValue::from_static("activator"));
        let (under_way, first) = self.reporter.enter();
        if let Some(report) = first
            && self.pokes.try_send((self.key.clone(), report)).is_err()
        {
            self.reporter.not_told(); // so many first requests at once: its second tells it
        }
        self.deliver(onward, Held { under_way: Some(under_way), lease: None }).await
    }
}
