//! What all connections of a process share: the table as requests find it, and the connections to pods.
//!
//! Who waits for an endpoint is told of every change of the table and of every endpoint that answers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use drover_proxy::forward::Forwarder;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::route::{Route, UnderWay};
use crate::table::{Compiled, Table};

/// Requests that may wait for an endpoint at the same time.
const WAITING: usize = 2_000;
/// Pause before all endpoints are tried again after none took a request.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of a process of the data path.
#[derive(Debug, Default)]
pub struct DataPath {
    table: Mutex<Table>,
    compiled: RwLock<Arc<Compiled>>,
    changed: watch::Sender<u64>,
    waiting: AtomicUsize,
    /// Connections to pods.
    pub forwarder: Forwarder,
}

/// Why no endpoint was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEndpoint {
    /// The route is gone.
    NoRoute,
    /// None could be reached in time.
    InTime,
    /// Too many requests are waiting already.
    Crowded,
}

/// The search for an endpoint of one request or connection: it remembers what was tried.
pub struct Search<'a> {
    path: &'a DataPath,
    /// As it was when it was last looked up.
    route: Arc<Route>,
    tried: Vec<SocketAddr>,
    until: Option<Instant>,
}

impl DataPath {
    /// A process that starts with this table.
    pub fn new(table: Table) -> Arc<Self> {
        let path = Arc::new(Self::default());
        path.change(|known| *known = table);
        path
    }

    /// Changes the table. Returns the table if that made a difference.
    pub fn change(&self, change: impl FnOnce(&mut Table)) -> Option<Table> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = table.clone();
        change(&mut new);
        if *table == new {
            return None;
        }
        // Compiled while the table is locked, so that an older one never replaces a newer one.
        let compiled = Arc::new(new.compile(&self.compiled()));
        *self.compiled.write().unwrap_or_else(PoisonError::into_inner) = compiled;
        *table = new.clone();
        self.tell();
        Some(new)
    }

    /// The table as it is stored.
    pub fn table(&self) -> Table {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What requests find at the moment.
    pub fn compiled(&self) -> Arc<Compiled> {
        self.compiled.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Is told of every change of the table, and whenever an endpoint begins or ceases to answer.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Tells of a change.
    pub fn tell(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    /// Begins the search for an endpoint of a route.
    pub fn search(&self, route: Arc<Route>) -> Search<'_> {
        Search { path: self, route, tried: Vec::new(), until: None }
    }

    fn route(&self, id: Uuid, port: u16) -> Option<Arc<Route>> {
        self.compiled().ports.get(&port)?.routes().find(|route| route.id == id).cloned()
    }
}

impl Search<'_> {
    /// The next endpoint to try; waits for one as long as the route says.
    pub async fn next(&mut self) -> Result<UnderWay, NoEndpoint> {
        if let Some(found) = self.choose() {
            return Ok(found);
        }
        let mut queued = None;
        loop {
            let mut changes = self.path.changes();
            self.route = self.path.route(self.route.id, self.route.port).ok_or(NoEndpoint::NoRoute)?;
            if let Some(found) = self.choose() {
                return Ok(found);
            }
            let hold = Duration::from_secs(self.route.hold_seconds.into());
            let until = *self.until.get_or_insert_with(|| Instant::now() + hold);
            if Instant::now() >= until {
                return Err(NoEndpoint::InTime);
            }
            if queued.is_none() {
                queued = Some(Waiting::enter(&self.path.waiting).ok_or(NoEndpoint::Crowded)?);
            }
            let pause = if self.tried.is_empty() { until } else { until.min(Instant::now() + PAUSE) };
            // Either something has changed, or all are tried again.
            let _ = timeout_at(pause, changes.changed()).await;
            self.tried.clear();
        }
    }

    fn choose(&self) -> Option<UnderWay> {
        self.route.choose(&self.tried, &mut |below| fastrand::usize(..below))
    }

    /// This endpoint did not take it: the next ones are others.
    pub fn failed(&mut self, tried: &UnderWay) {
        self.tried.push(tried.endpoint.address);
        // Only what is new wakes those who wait: they would wake each other, and try without a pause.
        if tried.suspect() {
            self.path.tell();
        }
    }

    /// How many endpoints did not take it.
    pub fn tries(&self) -> usize {
        self.tried.len()
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize) -> Option<Self> {
        let entered = Self(count);
        // Dropped again if it is one too many.
        (count.fetch_add(1, Ordering::Relaxed) < WAITING).then_some(entered)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
