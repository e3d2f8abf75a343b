//! Routes that a gateway carries: the weights of the backends of an `HTTPRoute` follow the weights of an app's copies.
//!
//! This is the second target of users' traffic, beside Drover's own data path, and it is spoken to in the same way: it follows the feed
//! `routes` of orchestrator, and tells in a feed `traffic` what it has done. It is level-triggered and stores nothing: after a crash the
//! feed and the `HTTPRoute` say what is left to do.
//!
//! Only `weight` is changed, and only of backends that lead to a copy of the app ([`GatewayRef::backend`]), by a patch that names the version
//! which was read. Invariants: a report says what the `HTTPRoute` has; the backends of an app never get the weight 0 all together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::traffic::{BackendReport, CopyEndpoints, GatewayRef, RouteReport, RouteTable};
use drover_members::DEADLINE;
use drover_members::labels::FIELD_MANAGER;
use drover_members::{MemberError, ObjectId};
use drover_scheduling::MemberKey;
use drover_service::{FeedHub, FeedReader, TaskHandle};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

use crate::app::App;

/// How often each `HTTPRoute` is read: a weight that somebody else has changed is set again.
const PERIOD: Duration = Duration::from_secs(5);
/// Time in which changes of endpoints are gathered.
const GATHER: Duration = Duration::from_millis(200);
/// How many of a cluster are read at once.
const AT_ONCE: usize = 8;
/// The weight of a backend that names none.
const DEFAULT: u64 = 1;

/// What the feed `routes` says of gateways, and what is told of them; cheap to clone.
#[derive(Clone, Default)]
pub struct Gateways(Arc<Parts>);

#[derive(Default)]
struct Parts {
    tables: Mutex<BTreeMap<Uuid, RouteTable>>,
    /// Is told of every change of the tables.
    changed: watch::Sender<()>,
    reports: FeedHub<RouteReport>,
}

impl Gateways {
    /// The feed `traffic`.
    pub fn reports(&self) -> &FeedHub<RouteReport> {
        &self.0.reports
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<Uuid, RouteTable>> {
        self.0.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the routes; never returns.
    pub async fn follow(self, mut reader: FeedReader<RouteTable>) {
        loop {
            let batch = reader.next().await;
            {
                let mut tables = self.tables();
                if batch.reset {
                    tables.clear();
                }
                batch.merge_into(&mut tables, |route| route.gateway.is_some());
            }
            self.0.changed.send_replace(());
        }
    }

    /// Carries the routes out, those of each cluster for themselves, so that one that does not answer delays no other; never returns.
    pub async fn carry(self, app: App, task: TaskHandle) {
        let mut changes = self.0.changed.subscribe();
        let (mut passes, mut carried) = (FuturesUnordered::new(), BTreeSet::new());
        loop {
            task.active();
            self.forget();
            for cluster in self.clusters() {
                if carried.insert(cluster.clone()) {
                    passes.push(self.carry_in(&app, cluster));
                }
            }
            tokio::select! {
                Some(ended) = passes.next(), if !passes.is_empty() => drop(carried.remove(&ended)),
                _ = changes.changed() => {}
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
    }

    /// The clusters whose gateways carry routes.
    fn clusters(&self) -> BTreeSet<MemberKey> {
        self.tables().values().filter_map(|table| Some(table.gateway.as_ref()?.cluster.clone())).collect()
    }

    /// Tells that routes which are gone are not carried any more.
    fn forget(&self) {
        for key in self.reports().snapshot().into_keys() {
            if key.parse().is_ok_and(|id: Uuid| !self.tables().contains_key(&id)) {
                self.reports().publish(key, None);
            }
        }
    }

    /// Carries out the routes of a cluster until it has none; returns the cluster.
    async fn carry_in(&self, app: &App, cluster: MemberKey) -> MemberKey {
        let (mut changes, mut endpoints) = (self.0.changed.subscribe(), app.endpoints.changes());
        loop {
            let of_cluster = |table: &&RouteTable| table.gateway.as_ref().is_some_and(|gateway| gateway.cluster == cluster);
            let tables: Vec<RouteTable> = self.tables().values().filter(of_cluster).cloned().collect();
            if tables.is_empty() {
                return cluster;
            }
            let members = app.members();
            futures::stream::iter(tables).for_each_concurrent(AT_ONCE, |table| self.settle(app, &members, table)).await;
            tokio::select! {
                _ = changes.changed() => {}
                _ = endpoints.changed() => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
    }

    async fn settle(&self, app: &App, members: &[MemberKey], table: RouteTable) {
        let Some(gateway) = &table.gateway else { return };
        let endpoints = |binding: Uuid| app.endpoints.get(&binding.to_string()).map_or(0, |found| ready(&found, &table));
        let report = match set(app, gateway, &table, members).await {
            Ok(Some(weights)) => report(&table, &weights, endpoints, None),
            Ok(None) => {
                // It carries nothing, so nothing is kept waiting for it.
                let weights = table.backends.iter().map(|backend| (backend.binding, backend.weight)).collect();
                report(&table, &weights, endpoints, Some(format!("there is no {gateway}")))
            }
            Err(reason) => {
                // What it does is what it did.
                let known = self.reports().get(&table.id.to_string());
                let weights =
                    known.iter().flat_map(|known| known.backends.iter().map(|backend| (backend.binding, backend.weight))).collect();
                report(&table, &weights, endpoints, Some(format!("{gateway}: {reason}")))
            }
        };
        // What was under way in a cluster that does not answer says nothing of a route that is somewhere else by now.
        let tables = self.tables();
        if tables.get(&table.id).is_some_and(|newest| newest.gateway == table.gateway) {
            self.reports().publish_if_changed(table.id.to_string(), Some(report));
        }
    }
}

/// Sets the weights in the cluster, and returns those that the copies with a backend have then. `None`: there is no such `HTTPRoute`.
async fn set(app: &App, gateway: &GatewayRef, table: &RouteTable, members: &[MemberKey]) -> Result<Option<BTreeMap<Uuid, u16>>, String> {
    let member = app.member(&gateway.cluster).await?;
    let id = ObjectId {
        api_version: "gateway.networking.k8s.io/v1".into(),
        kind: "HTTPRoute".into(),
        namespace: gateway.namespace.clone(),
        name: gateway.http_route.clone(),
    };
    let object = match member.object(&id).await {
        Ok(Some(object)) => serde_json::to_value(object).map_err(|error| error.to_string())?,
        Ok(None) | Err(MemberError::UnknownKind { .. }) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let weighed = weigh(&object, table, gateway, members);
    if weighed.patch.is_empty() {
        return Ok(Some(weighed.weights));
    }
    let version = json!({"op": "test", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"]});
    let patch: Vec<Value> = std::iter::once(version).chain(weighed.patch).collect();
    let patch: Patch<()> = Patch::Json(serde_json::from_value(Value::Array(patch)).map_err(|error| error.to_string())?);
    let api = member.api(&id).await.map_err(|error| error.to_string())?;
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let changed = timeout(DEADLINE, api.patch(&id.name, &params, &patch)).await;
    changed.map_err(|_| "no answer in time".to_owned())?.map_err(|error| error.to_string())?;
    tracing::info!(route = %table.name, gateway = %gateway, weights = ?weighed.weights, "the weights of a gateway were set");
    Ok(Some(weighed.weights))
}

/// What is to change of an `HTTPRoute`, and the weights of the copies that have a backend when it is changed.
#[derive(Debug, Default, PartialEq)]
struct Weighed {
    patch: Vec<Value>,
    weights: BTreeMap<Uuid, u16>,
}

fn weigh(http_route: &Value, table: &RouteTable, gateway: &GatewayRef, members: &[MemberKey]) -> Weighed {
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for member in members.iter().chain([&gateway.cluster]) {
        wanted.insert(gateway.backend(&table.service, member), 0);
    }
    for copy in &table.backends {
        *wanted.entry(gateway.backend(&table.service, &copy.member)).or_default() += u64::from(copy.weight);
    }
    let mut weighed = Weighed::default();
    // What the backends of a name have in the end, where that is not what is wanted.
    let (mut found, mut others): (BTreeMap<&str, u64>, BTreeMap<&str, u64>) = Default::default();
    for (rule, backends) in http_route["spec"]["rules"].as_array().into_iter().flatten().map(|rule| &rule["backendRefs"]).enumerate() {
        let backends = backends.as_array().into_iter().flatten().enumerate();
        let own = |backend: &Value| backend["namespace"].as_str().is_none_or(|namespace| namespace == gateway.namespace);
        let of_app: Vec<(usize, &str, u64, u64)> = backends
            .filter(|(_, backend)| own(backend))
            .filter_map(|(at, backend)| {
                let name = backend["name"].as_str()?;
                Some((at, name, backend["weight"].as_u64().unwrap_or(DEFAULT), *wanted.get(name)?))
            })
            .collect();
        let serves = of_app.iter().any(|(.., wanted)| *wanted > 0);
        for (at, name, is, wanted) in of_app {
            found.insert(name, wanted);
            if !serves {
                others.insert(name, is);
            } else if is != wanted {
                weighed.patch.push(json!({"op": "add", "path": format!("/spec/rules/{rule}/backendRefs/{at}/weight"), "value": wanted}));
            }
        }
    }
    for copy in &table.backends {
        let name = gateway.backend(&table.service, &copy.member);
        let Some(wanted) = found.get(name.as_str()) else { continue };
        let other = others.get(name.as_str()).filter(|is| *is != wanted);
        weighed.weights.insert(copy.binding, other.map_or(copy.weight, |is| u16::try_from(*is).unwrap_or(u16::MAX)));
    }
    weighed
}

/// How many ready pods a copy has behind the port of a route.
fn ready(copy: &CopyEndpoints, table: &RouteTable) -> usize {
    let ports = copy.ports.iter().filter(|port| port.service == table.service && port.port == table.service_port);
    ports.map(|port| port.pods.len()).sum()
}

/// What is told of a route: a copy answers if it has a backend and ready pods.
fn report(table: &RouteTable, weights: &BTreeMap<Uuid, u16>, endpoints: impl Fn(Uuid) -> usize, problem: Option<String>) -> RouteReport {
    let backends = table.backends.iter().map(|copy| {
        let (weight, endpoints) = (weights.get(&copy.binding).copied(), endpoints(copy.binding));
        BackendReport {
            binding: copy.binding,
            weight: weight.unwrap_or(0),
            endpoints,
            answering: if weight.is_some() { endpoints } else { 0 },
            under_way: 0,
            requests: 0,
            failures: 0,
        }
    });
    RouteReport { route: table.id, problem, backends: backends.collect() }
}

#[cfg(test)]
mod tests {
    use drover_api::traffic::{RouteBackend, RouteProtocol};

    use super::*;

    fn member(name: &str) -> MemberKey {
        MemberKey::new("p", name)
    }

    fn table(copies: &[(&str, u16)]) -> (RouteTable, GatewayRef) {
        let gateway = GatewayRef { cluster: member("a"), namespace: "default".into(), http_route: "shop".into() };
        let copy = |(at, (name, weight)): (usize, &(&str, u16))| RouteBackend {
            binding: Uuid::from_u128(at as u128),
            member: member(name),
            weight: *weight,
        };
        let table = RouteTable {
            id: Uuid::nil(),
            name: "p/shop/web".into(),
            protocol: RouteProtocol::Http,
            host: None,
            port: 80,
            service: "web".into(),
            service_port: String::new(),
            probe: None,
            hold_seconds: 0,
            gateway: Some(gateway.clone()),
            backends: copies.iter().enumerate().map(copy).collect(),
        };
        (table, gateway)
    }

    fn http_route() -> Value {
        json!({"spec": {"rules": [
            {"backendRefs": [{"name": "other", "weight": 7}]},
            {"backendRefs": [{"name": "web"}, {"name": "web-p-b", "weight": 0}, {"name": "canary", "weight": 3}, {"name": "web", "namespace": "else"}]},
        ]}})
    }

    fn weighed(copies: &[(&str, u16)]) -> (Vec<(String, u64)>, Vec<u16>) {
        let (table, gateway) = table(copies);
        let weighed = weigh(&http_route(), &table, &gateway, &[member("a"), member("b"), member("c")]);
        let set = |change: &Value| (change["path"].as_str().unwrap().to_owned(), change["value"].as_u64().unwrap());
        (weighed.patch.iter().map(set).collect(), weighed.weights.into_values().collect())
    }

    #[test]
    fn only_backends_that_lead_to_a_copy_get_its_weight() {
        let weight = |at: usize, weight: u64| (format!("/spec/rules/1/backendRefs/{at}/weight"), weight);
        assert_eq!(weighed(&[("a", 100)]), (vec![weight(0, 100)], vec![100]));
        assert_eq!(weighed(&[("a", 80), ("b", 20)]), (vec![weight(0, 80), weight(1, 20)], vec![80, 20]));
        assert_eq!(weighed(&[("b", 100)]), (vec![weight(0, 0), weight(1, 100)], vec![100]), "what has no copy gets nothing");
    }

    #[test]
    fn backends_of_an_app_do_not_lose_all_weight_together() {
        assert_eq!(weighed(&[("c", 100)]), (vec![], vec![]), "the copy has no backend");
        assert_eq!(weighed(&[("a", 0), ("c", 100)]), (vec![], vec![1]), "what it has is told, and not what was asked for");
        assert_eq!(weighed(&[]), (vec![], vec![]));
    }
}
