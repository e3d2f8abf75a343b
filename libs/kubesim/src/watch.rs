//! WATCH: a stream over the cluster's log. A watch keeps a revision and no queue, so a slow reader costs no memory; one
//! that falls behind the log is answered 410, like by a real server.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::api::Target;
use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::faults::Unreachable;
use crate::selectors::{Fields, Labels};
use crate::state::ClusterState;
use crate::store::Event;

/// A real server sends bookmarks about once a minute.
const BOOKMARKS: Duration = Duration::from_secs(60);

/// A watch as the client asks for it.
pub struct WatchRequest {
    pub target: Target,
    pub labels: Labels,
    pub fields: Fields,
    pub metadata_only: bool,
    pub bookmarks: bool,
    pub initial_events: bool,
    pub revision: String,
    pub timeout: Duration,
}

struct Stream {
    cluster: Arc<Cluster>,
    request: WatchRequest,
    at: u64,
    first: Option<Vec<u8>>,
    revisions: watch::Receiver<u64>,
    epoch: watch::Receiver<u64>,
    born_in: u64,
    end: Instant,
    bookmark: Instant,
    over: bool,
}

/// Opens a watch.
///
/// # Errors
/// 400 when the revision is no number.
pub fn open(cluster: Arc<Cluster>, request: WatchRequest) -> Result<Body, ApiError> {
    let (mut at, mut first) = (0, None);
    match request.revision.as_str() {
        revision if !matches!(revision, "" | "0") && !request.initial_events => {
            at = revision.parse().map_err(|_| ApiError::bad_request(format!("invalid resourceVersion: {revision}")))?;
        }
        _ => {
            let (revision, bytes) = cluster.with(|state| (state.store.revision(), initial(state, &request)));
            at = at.max(revision);
            first = Some(bytes);
        }
    }
    let (revisions, epoch, now) = (cluster.revisions(), cluster.faults.epoch(), Instant::now());
    let born_in = *epoch.borrow();
    let stream = Stream {
        end: now + request.timeout,
        bookmark: now + BOOKMARKS,
        cluster,
        request,
        at,
        first,
        revisions,
        epoch,
        born_in,
        over: false,
    };
    Ok(Body::from_stream(futures::stream::unfold(stream, |mut stream| async move {
        let chunk = stream.next().await?;
        Some((chunk, stream))
    })))
}

/// The current objects as ADDED events, and the bookmark after them if the client asks for it.
fn initial(state: &ClusterState, request: &WatchRequest) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (_, object) in state.store.list(&request.target.kind.resource, &request.target.namespace) {
        if request.matches(&object) {
            line(&mut bytes, "ADDED", request.shown(&object));
        }
    }
    if request.initial_events {
        let mut mark = request.bookmark(state.store.revision());
        mark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        line(&mut bytes, "BOOKMARK", mark);
    }
    bytes
}

impl Stream {
    async fn next(&mut self) -> Option<Result<Bytes, Unreachable>> {
        loop {
            if self.over {
                return None;
            }
            // Marked as seen before anything is read, so that no later change is missed.
            let epoch = *self.epoch.borrow_and_update();
            self.revisions.borrow_and_update();
            match self.cluster.faults.partition() {
                Some(false) => {
                    self.over = true;
                    return Some(Err(Unreachable));
                }
                Some(true) => {
                    self.epoch.changed().await.ok()?;
                    continue;
                }
                None if epoch != self.born_in => return None,
                None => {}
            }
            if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
                return Some(Ok(first.into()));
            }
            let chunk = self.read();
            if !chunk.is_empty() {
                return Some(Ok(chunk.into()));
            }
            let wake = if self.request.bookmarks { self.end.min(self.bookmark) } else { self.end };
            tokio::select! {
                changed = self.revisions.changed() => changed.ok()?,
                changed = self.epoch.changed() => changed.ok()?,
                () = sleep_until(wake) => {
                    if Instant::now() >= self.end {
                        return None;
                    }
                    self.bookmark = Instant::now() + BOOKMARKS;
                    let mut bytes = Vec::new();
                    line(&mut bytes, "BOOKMARK", self.request.bookmark(self.at));
                    return Some(Ok(bytes.into()));
                }
            }
        }
    }

    fn read(&mut self) -> Vec<u8> {
        let (request, at) = (&self.request, self.at);
        let (next, events) = self.cluster.with(|state| {
            if at < state.store.compacted() {
                return (at, Err(ApiError::gone(at, state.store.compacted())));
            }
            let events: Vec<Event> = state.store.since(at).filter(|event| request.concerns(event)).cloned().collect();
            (at.max(state.store.revision()), Ok(events))
        });
        self.at = next;
        let mut bytes = Vec::new();
        match events {
            Ok(events) => events.iter().for_each(|event| self.request.write(&mut bytes, event)),
            Err(gone) => {
                line(&mut bytes, "ERROR", gone.status());
                self.over = true;
            }
        }
        bytes
    }
}

impl WatchRequest {
    fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }

    fn concerns(&self, event: &Event) -> bool {
        event.key.resource == self.target.kind.resource
            && (self.target.namespace.is_empty() || *event.key.namespace == *self.target.namespace)
    }

    /// Writes the event that this watch has for a change: objects that enter or leave the selector appear as created or deleted.
    fn write(&self, bytes: &mut Vec<u8>, event: &Event) {
        let old = event.old.as_deref().filter(|old| self.matches(old));
        let new = event.new.as_deref().filter(|new| self.matches(new));
        match (old, new) {
            (None, None) => {}
            (None, Some(new)) => line(bytes, "ADDED", self.shown(new)),
            (Some(_), Some(new)) => line(bytes, "MODIFIED", self.shown(new)),
            (Some(old), None) => {
                let mut last = self.shown(old);
                last["metadata"]["resourceVersion"] = json!(event.revision.to_string());
                line(bytes, "DELETED", last);
            }
        }
    }

    fn shown(&self, object: &Value) -> Value {
        if self.metadata_only {
            return metadata_of(object);
        }
        let mut object = object.clone();
        object["apiVersion"] = json!(self.target.kind.api_version());
        object
    }

    fn bookmark(&self, revision: u64) -> Value {
        let (kind, version) = if self.metadata_only {
            ("PartialObjectMetadata".to_string(), "meta.k8s.io/v1".to_string())
        } else {
            (self.target.kind.kind.clone(), self.target.kind.api_version())
        };
        json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": revision.to_string(), "creationTimestamp": null}})
    }
}

/// The object as `PartialObjectMetadata`.
pub fn metadata_of(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn line(bytes: &mut Vec<u8>, kind: &str, object: Value) {
    bytes.extend_from_slice(json!({"type": kind, "object": object}).to_string().as_bytes());
    bytes.push(b'\n');
}
