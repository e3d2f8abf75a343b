//! Users' traffic as this service sees it: the routes that it publishes, and what the processes of the data path report.
//!
//! In memory only: routes are made of the tables, reports come again after a restart.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use drover_api::traffic::{BackendReport, RouteReport, RouteTable, TrafficTarget};
use drover_service::{FeedContact, FeedHub};
use reqwest::Url;
use tokio::sync::Notify;
use uuid::Uuid;

/// A process that carries routes and has not been heard of for this long counts as silent: longer than the long poll of its feed.
const SILENT: Duration = Duration::from_secs(15);

/// Routes and reports; cheap to clone.
#[derive(Clone, Default)]
pub struct Traffic(Arc<Parts>);

#[derive(Default)]
struct Parts {
    /// The feed `routes`.
    routes: FeedHub<RouteTable>,
    /// Routes that cannot be carried out as they are, with the reason.
    broken: RwLock<HashMap<Uuid, String>>,
    processes: RwLock<Vec<Process>>,
    changed: Notify,
}

struct Process {
    target: TrafficTarget,
    url: Url,
    contact: FeedContact,
    reports: HashMap<Uuid, RouteReport>,
}

/// A process that carries routes, and when it was heard of.
pub type Carrier = (TrafficTarget, Url, FeedContact);

/// What the processes that carry a route say of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// The reports of all processes that are not silent.
    pub reports: Vec<RouteReport>,
    /// Processes that are silent or do not know the route.
    pub missing: Vec<String>,
}

/// The traffic of one copy through all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyTraffic {
    /// Endpoints that answer every process.
    pub answering: usize,
    /// The most endpoints that a process knows.
    pub endpoints: usize,
    pub under_way: u64,
    pub requests: u64,
    pub failures: u64,
}

impl Traffic {
    /// With the processes that carry routes.
    pub fn new(carriers: Vec<Carrier>) -> Self {
        let process = |(target, url, contact)| Process { target, url, contact, reports: HashMap::new() };
        let processes = RwLock::new(carriers.into_iter().map(process).collect());
        Self(Arc::new(Parts { processes, ..Parts::default() }))
    }

    /// The feed `routes`.
    pub fn routes(&self) -> &FeedHub<RouteTable> {
        &self.0.routes
    }

    /// Replaces what is published: these routes, and those that cannot be carried out.
    pub fn publish(&self, routes: Vec<RouteTable>, broken: HashMap<Uuid, String>) {
        let now: HashSet<Uuid> = routes.iter().map(|route| route.id).collect();
        for key in self.0.routes.snapshot().into_keys() {
            if !key.parse::<Uuid>().is_ok_and(|id| now.contains(&id)) {
                self.0.routes.publish(key, None);
            }
        }
        for route in routes {
            self.0.routes.publish_if_changed(route.id.to_string(), Some(route));
        }
        *self.0.broken.write().unwrap_or_else(PoisonError::into_inner) = broken;
    }

    /// Why a route cannot be carried out; none: it can.
    pub fn broken(&self, route: Uuid) -> Option<String> {
        self.0.broken.read().unwrap_or_else(PoisonError::into_inner).get(&route).cloned()
    }

    /// Has the routes published anew.
    pub fn nudge(&self) {
        self.0.changed.notify_one();
    }

    /// Waits for [`Traffic::nudge`].
    pub async fn nudged(&self) {
        self.0.changed.notified().await;
    }

    /// Whether there is any process that carries such routes.
    pub fn is_served(&self, target: TrafficTarget) -> bool {
        self.processes().iter().any(|process| process.target == target)
    }

    /// Takes in what the process with this number tells; returns the routes that it told of.
    pub fn take(&self, process: usize, reset: bool, items: Vec<(String, Option<RouteReport>)>) -> Vec<Uuid> {
        let mut processes = self.processes_mut();
        let Some(process) = processes.get_mut(process) else { return Vec::new() };
        if reset {
            process.reports.clear();
        }
        let mut told = Vec::with_capacity(items.len());
        for (key, report) in items {
            let Ok(id) = key.parse() else { continue };
            told.push(id);
            match report {
                Some(report) => drop(process.reports.insert(id, report)),
                None => drop(process.reports.remove(&id)),
            }
        }
        told
    }

    /// What is reported of a route with this target.
    pub fn reported(&self, route: Uuid, target: TrafficTarget) -> Reported {
        let mut reported = Reported::default();
        for process in self.processes().iter().filter(|process| process.target == target) {
            match process.reports.get(&route).filter(|_| process.contact.age().is_some_and(|age| age < SILENT)) {
                Some(report) => reported.reports.push(report.clone()),
                None => reported.missing.push(process.url.to_string()),
            }
        }
        reported
    }

    fn processes(&self) -> RwLockReadGuard<'_, Vec<Process>> {
        self.0.processes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn processes_mut(&self) -> RwLockWriteGuard<'_, Vec<Process>> {
        self.0.processes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reported {
    /// The traffic of a copy.
    pub fn copy(&self, binding: Uuid) -> CopyTraffic {
        let each = || self.reports.iter().map(|report| report.backends.iter().find(|backend| backend.binding == binding));
        let sum = |of: fn(&BackendReport) -> u64| -> u64 { each().map(|backend| backend.map_or(0, of)).sum() };
        CopyTraffic {
            answering: each().map(|backend| backend.map_or(0, |backend| backend.answering)).min().unwrap_or(0),
            endpoints: each().map(|backend| backend.map_or(0, |backend| backend.endpoints)).max().unwrap_or(0),
            under_way: sum(|backend| backend.under_way),
            requests: sum(|backend| backend.requests),
            failures: sum(|backend| backend.failures),
        }
    }

    /// Whether every process chooses the copy with this weight; with `None`, whether no process has the copy with another one than 0.
    pub fn weighs(&self, binding: Uuid, weight: u16) -> bool {
        self.missing.is_empty()
            && self.reports.iter().all(|report| {
                let backend = report.backends.iter().find(|backend| backend.binding == binding);
                backend.map_or(weight == 0, |backend| backend.weight == weight)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(route: Uuid, binding: Uuid, weight: u16, answering: usize) -> RouteReport {
        let backend = BackendReport { binding, weight, endpoints: 2, answering, under_way: 1, requests: 10, failures: 1 };
        RouteReport { route, problem: None, backends: vec![backend] }
    }

    #[test]
    fn copy_is_as_good_as_the_worst_process_says() {
        let (route, binding) = (Uuid::new_v4(), Uuid::new_v4());
        let reported = Reported { reports: vec![report(route, binding, 10, 2), report(route, binding, 10, 1)], missing: vec![] };
        let copy = reported.copy(binding);
        assert_eq!((copy.answering, copy.endpoints, copy.under_way, copy.requests, copy.failures), (1, 2, 2, 20, 2));
        assert!(reported.weighs(binding, 10) && !reported.weighs(binding, 0) && reported.weighs(Uuid::new_v4(), 0));
        let silent = Reported { missing: vec!["http://a".into()], ..reported };
        assert!(!silent.weighs(binding, 10), "a process that is silent may still choose as before");
    }

    #[test]
    fn process_that_was_never_heard_of_is_missing() {
        let traffic = Traffic::new(vec![(TrafficTarget::DataPath, Url::parse("http://127.0.0.1:1").unwrap(), FeedContact::default())]);
        let route = Uuid::new_v4();
        traffic.take(0, true, vec![(route.to_string(), Some(report(route, Uuid::new_v4(), 100, 1)))]);
        assert_eq!(traffic.reported(route, TrafficTarget::DataPath).missing.len(), 1);
        assert!(traffic.is_served(TrafficTarget::DataPath) && !traffic.is_served(TrafficTarget::Gateway));
        assert_eq!(traffic.reported(route, TrafficTarget::Gateway), Reported::default(), "it carries no such routes");
    }
}
