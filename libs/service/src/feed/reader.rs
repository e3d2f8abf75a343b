//! The reading side of a feed: reconnects with back-off and jitter, and knows when the feed last answered.
//!
//! This is not a generated client, because one reader works for all feeds, and a value that cannot be decoded must cost its key only,
//! not the page. Values stay text until they are decoded: as JSON trees, a page of a large fleet would take many times its size.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::FeedPage;
use crate::backoff;
use crate::peer::Peer;
use drover_tasks::TaskHandle;

/// Follows one feed; see [`FeedReader::next`].
pub struct FeedReader<T> {
    peer: Peer,
    path: String,
    wait: u64,
    since: Option<String>,
    failures: u32,
    contact: FeedContact,
    task: Option<TaskHandle>,
    /// Pages of a batch that is not complete yet. Kept here so that nothing is lost when the future of [`FeedReader::next`] is dropped.
    pending: FeedBatch<T>,
}

/// Changes, to be applied in this order.
#[derive(Clone, Debug)]
pub struct FeedBatch<T> {
    /// Everything known before must be forgotten first.
    pub reset: bool,
    /// Newest values; none for a key that was removed.
    pub items: Vec<(String, Option<T>)>,
}

impl<T> Default for FeedBatch<T> {
    fn default() -> Self {
        Self { reset: false, items: Vec::new() }
    }
}

impl<T> FeedBatch<T> {
    /// Takes the changes over into the values that are known by id; one that is not of interest counts as removed. Whether a reset forgets the
    /// others is up to the caller.
    pub fn merge_into(self, known: &mut BTreeMap<Uuid, T>, of_interest: impl Fn(&T) -> bool) {
        for (key, value) in self.items {
            let Ok(id) = key.parse::<Uuid>() else { continue };
            match value.filter(&of_interest) {
                Some(value) => drop(known.insert(id, value)),
                None => drop(known.remove(&id)),
            }
        }
    }
}

/// When the feed last answered; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct FeedContact(Arc<Mutex<Option<Instant>>>);

impl FeedContact {
    /// Time since the last answer; none if it has never answered.
    pub fn age(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed())
    }

    fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

impl<T: DeserializeOwned> FeedReader<T> {
    /// A reader of `path` (for example `/internal/feeds/members`) of `peer`.
    pub fn new(peer: Peer, path: impl Into<String>) -> Self {
        let wait = 10;
        let peer = peer.attempts(1).timeout(Duration::from_secs(wait + 10));
        Self {
            peer,
            path: path.into(),
            wait,
            since: None,
            failures: 0,
            contact: FeedContact::default(),
            task: None,
            pending: FeedBatch::default(),
        }
    }

    /// A reader of the same feed for one run of a task. It begins with a reset, because a run that panicked may not have applied
    /// its last batch. It shares the contact, and each answer counts as the task's activity.
    pub fn for_task(&self, task: TaskHandle) -> Self {
        let mut reader = Self::new(self.peer.clone(), self.path.clone());
        (reader.contact, reader.task) = (self.contact.clone(), Some(task));
        reader
    }

    /// A handle that tells when the feed last answered.
    pub fn contact(&self) -> FeedContact {
        self.contact.clone()
    }

    /// Waits for the next changes and returns all pages of them. The first batch is a reset. Never fails: an error is logged once, and the
    /// request is repeated.
    pub async fn next(&mut self) -> FeedBatch<T> {
        loop {
            let since = self.since.as_deref().map(|since| format!("&since={since}")).unwrap_or_default();
            let path = format!("{}?wait={}{since}", self.path, self.wait);
            match self.peer.get::<FeedPage<Box<RawValue>>>(&path).await {
                Ok(page) => {
                    if self.failures > 1 {
                        tracing::info!(feed = %self.path, peer = self.peer.name(), "the feed answers again");
                    }
                    self.failures = 0;
                    self.contact.now();
                    if let Some(task) = &self.task {
                        task.active();
                    }
                    self.since = Some(page.version);
                    if page.reset {
                        // The feed may also be restarted in the middle of a batch; the batch then starts again.
                        self.pending = FeedBatch { reset: true, items: Vec::new() };
                    }
                    let items = page.items.into_iter().filter_map(|item| self.decode(item.key, item.value));
                    let items: Vec<_> = items.collect();
                    self.pending.items.extend(items);
                    if !page.more && (self.pending.reset || !self.pending.items.is_empty()) {
                        return std::mem::take(&mut self.pending);
                    }
                }
                Err(error) => {
                    self.failures += 1;
                    // A single failure is often a restart of the service and not worth a warning.
                    if self.failures == 2 {
                        tracing::warn!(feed = %self.path, peer = self.peer.name(), %error, "the feed does not answer; trying again");
                    }
                    tokio::time::sleep(backoff(self.failures, Duration::from_secs(3))).await;
                }
            }
        }
    }

    /// Decodes a value. One that cannot be decoded is logged and left out.
    fn decode(&self, key: String, value: Option<Box<RawValue>>) -> Option<(String, Option<T>)> {
        match value.map(|value| serde_json::from_str(value.get())).transpose() {
            Ok(value) => Some((key, value)),
            Err(error) => {
                tracing::error!(feed = %self.path, key, %error, "a value of the feed cannot be decoded and is left out");
                None
            }
        }
    }
}
