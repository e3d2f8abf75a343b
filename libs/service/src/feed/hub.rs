//! The serving side of a feed.
//!
//! Keys are indexed by the version they changed in, so the cost of an answer depends on what changed and not on the size of the feed.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::routing::get;
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, PathItem, Paths, PathsBuilder};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::UtoipaMethodRouter;
use uuid::Uuid;

use super::{FeedItem, FeedPage, FeedQuery, MAX_WAIT_SECONDS};
use crate::{Json, Query};

/// A feed: values by key that other services follow; cheap to clone.
pub struct FeedHub<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for FeedHub<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

struct Shared<T> {
    /// Random per process start, because versions of an earlier start have no meaning.
    instance: String,
    state: Mutex<FeedState<T>>,
    changed: watch::Sender<u64>,
}

struct FeedState<T> {
    version: u64,
    /// Readers with an older version get a reset, because keys removed before it are no longer remembered.
    floor: u64,
    values: HashMap<Arc<str>, (u64, Option<Arc<T>>)>,
    order: BTreeMap<u64, Arc<str>>,
    gone: usize,
}

/// Largest number of items in an answer, so that neither side has all of a large feed in memory as JSON.
const PAGE: usize = 1_000;

/// Removed keys are remembered up to this number, or up to the number of values if that is larger.
const REMEMBERED: usize = 1_000;

impl<T> Default for FeedHub<T> {
    fn default() -> Self {
        let state = FeedState { version: 0, floor: 0, values: HashMap::new(), order: BTreeMap::new(), gone: 0 };
        let instance = Uuid::new_v4().simple().to_string()[..12].to_owned();
        Self { shared: Arc::new(Shared { instance, state: Mutex::new(state), changed: watch::channel(0).0 }) }
    }
}

impl<T> FeedHub<T> {
    /// An empty feed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Publishes a new value of a key; none removes the key. An unchanged value counts as a change too.
    pub fn publish(&self, key: impl Into<Arc<str>>, value: Option<T>) {
        self.publish_shared(key, value.map(Arc::new));
    }

    /// As [`FeedHub::publish`], for a value that its owner keeps too.
    pub fn publish_shared(&self, key: impl Into<Arc<str>>, value: Option<Arc<T>>) {
        let version = {
            let mut state = self.state();
            state.put(key.into(), value);
            state.version
        };
        self.shared.changed.send_replace(version);
    }

    /// As [`FeedHub::publish`], but an equal value is not published again.
    pub fn publish_if_changed(&self, key: impl Into<Arc<str>>, value: Option<T>)
    where
        T: PartialEq,
    {
        let key = key.into();
        let version = {
            let mut state = self.state();
            let known = state.values.get(&key).and_then(|(_, value)| value.as_deref());
            if known == value.as_ref() {
                return;
            }
            state.put(key, value.map(Arc::new));
            state.version
        };
        self.shared.changed.send_replace(version);
    }

    /// The newest value of a key.
    pub fn get(&self, key: &str) -> Option<Arc<T>> {
        self.state().values.get(key).and_then(|(_, value)| value.clone())
    }

    /// All values.
    pub fn snapshot(&self) -> BTreeMap<String, Arc<T>> {
        self.state().values.iter().filter_map(|(key, (_, value))| Some((key.to_string(), value.clone()?))).collect()
    }

    /// A receiver that is notified of every publication, for readers in this process.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// The changes since `since`, at most one page; waits for one up to `wait`, or until `shutdown`.
    pub async fn page(&self, since: Option<&str>, wait: Duration, shutdown: &CancellationToken) -> FeedPage<Arc<T>> {
        let mut changes = self.changes();
        let page = self.page_now(since);
        if page.reset || !page.items.is_empty() || wait.is_zero() {
            return page;
        }
        // The receiver was made before the first page, so nothing published since then is missed.
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(wait) => {}
            () = shutdown.cancelled() => {}
        }
        self.page_now(since)
    }

    fn page_now(&self, since: Option<&str>) -> FeedPage<Arc<T>> {
        let state = self.state();
        let position = since
            .and_then(|since| since.split_once(':'))
            .filter(|(instance, _)| *instance == self.shared.instance)
            .and_then(|(_, version)| version.parse::<u64>().ok())
            .filter(|version| (state.floor..=state.version).contains(version));
        let news = state.order.range((position.map_or(Unbounded, Excluded), Unbounded)).filter_map(|(version, key)| {
            let (_, value) = state.values.get(key)?;
            // A reader that starts from nothing need not be told of removed keys.
            (value.is_some() || position.is_some()).then(|| (*version, FeedItem { key: key.to_string(), value: value.clone() }))
        });
        let mut items: Vec<(u64, FeedItem<Arc<T>>)> = news.take(PAGE + 1).collect();
        let more = items.len() > PAGE;
        items.truncate(PAGE);
        let version = if more { items.last().map_or(state.version, |(version, _)| *version) } else { state.version };
        FeedPage {
            version: format!("{}:{version}", self.shared.instance),
            reset: position.is_none(),
            more,
            items: items.into_iter().map(|(_, item)| item).collect(),
        }
    }

    fn state(&self) -> MutexGuard<'_, FeedState<T>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> FeedState<T> {
    fn put(&mut self, key: Arc<str>, value: Option<Arc<T>>) {
        if value.is_none() && !self.values.contains_key(&*key) {
            return;
        }
        self.version += 1;
        self.gone += usize::from(value.is_none());
        if let Some((before, old)) = self.values.insert(Arc::clone(&key), (self.version, value)) {
            self.order.remove(&before);
            self.gone -= usize::from(old.is_none());
        }
        self.order.insert(self.version, key);
        if self.gone > REMEMBERED.max(self.values.len() - self.gone) {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.values.retain(|_, (version, value)| {
            if value.is_none() {
                self.order.remove(version);
                self.floor = self.floor.max(*version);
            }
            value.is_some()
        });
        self.gone = 0;
    }
}

impl<T: Serialize + ToSchema + Send + Sync + 'static> FeedHub<T> {
    /// The feed as a route with its description: `.routes(hub.route("/internal/feeds/members", "members_feed"))`.
    pub fn route<S: Clone + Send + Sync + 'static>(&self, path: &'static str, operation_id: &str) -> UtoipaMethodRouter<S> {
        let hub = self.clone();
        let handler = move |Query(query): Query<FeedQuery>, shutdown: Option<Extension<CancellationToken>>| {
            let hub = hub.clone();
            async move {
                let shutdown = shutdown.map(|Extension(token)| token).unwrap_or_default();
                let wait = Duration::from_secs(query.wait.min(MAX_WAIT_SECONDS));
                Json(hub.page(query.since.as_deref(), wait, &shutdown).await)
            }
        };
        let mut schemas = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut schemas);
        (schemas, paths::<T>(path, operation_id), get(handler))
    }
}

fn paths<T: ToSchema>(path: &str, operation_id: &str) -> Paths {
    let value = OneOfBuilder::new()
        .item(Schema::Object(ObjectBuilder::new().schema_type(Type::Null).build()))
        .item(Ref::from_schema_name(T::name()));
    let item = ObjectBuilder::new().property("key", text()).property("value", value).required("key").required("value");
    let page = ObjectBuilder::new()
        .property("version", text())
        .property("reset", ObjectBuilder::new().schema_type(Type::Boolean))
        .property("more", ObjectBuilder::new().schema_type(Type::Boolean))
        .property("items", ArrayBuilder::new().items(RefOr::T(Schema::Object(item.build()))))
        .required("version")
        .required("reset")
        .required("items");
    let content = ContentBuilder::new().schema(Some(Schema::Object(page.build()))).build();
    let operation = OperationBuilder::new()
        .operation_id(Some(operation_id))
        .tag("feed")
        .summary(Some("What changed since the reader's version: newest value per key"))
        .parameters(Some(FeedQuery::into_params(|| None)))
        .response("200", ResponseBuilder::new().description("What changed").content("application/json", content));
    PathsBuilder::new().path(path, PathItem::new(HttpMethod::Get, operation)).build()
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}
