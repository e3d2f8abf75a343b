//! Keeps the public EndpointSlices of all apps in line with the last decisions: clients reach either the activators or the pods.
//!
//! The agent calls [`Keeper::carry_out`] with each KPA decision and writes the replicas that it returns. Only the acting agent does so. Apps
//! without a recent decision are left as they are, so that a former acting agent and a new one do not overwrite each other.
//! Invariants: an app without ready pods has the activators in its path; clients are sent to activators only if those serve the app.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use drover_autoscaling::kpa::{KpaSpec, capacity, zero};
use drover_autoscaling::{DecisionRecord, Limits, Observation, Reading, Steps};
use drover_tasks::{OnFailure, Tasks};
use futures::{FutureExt, StreamExt, TryStreamExt, future};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Key;
use super::probe::Probe;
use super::slices::{self, ACTIVATORS_OF_ALL, ADMIN_PORT, MANAGED_BY, MANAGER, PATH, PUBLIC, PublicPath, PublicService, Through};
use super::stale::{self, Forgetting};
use super::zero::{AppActivity, AppObservation};
use crate::watch_backoff::WatchBackoff;

/// Apps whose last decision is older than this are left as they are.
const STEERED_WITHIN: Duration = Duration::from_secs(20);
/// Wait before a failed step is repeated.
const AGAIN: Duration = Duration::from_millis(500);
/// Ports that activators open for apps.
const PORTS: std::ops::RangeInclusive<u16> = 10_000..=19_999;
/// Concurrent requests that one activator is meant for (Knative's activator-capacity).
const ACTIVATOR_CAPACITY: f64 = 100.0;

/// Keeps the public EndpointSlices.
pub struct Keeper {
    me: Weak<Self>,
    client: Client,
    /// The only namespace whose policies the agent tends; none: it tends all. Slices of Services in others are not deleted.
    watched: Option<String>,
    began: Instant,
    services: Store<Service>,
    slices: Store<EndpointSlice>,
    /// The writers of both stores, until the watches are started.
    idle: Mutex<Option<(Writer<Service>, Writer<EndpointSlice>)>>,
    probe: Probe,
    apps: Mutex<BTreeMap<Key, SteeredApp>>,
    changed: Notify,
    tasks: Tasks,
}

/// The last decision on an app, and what is known of its path.
#[derive(Clone, Debug)]
struct SteeredApp {
    at: Instant,
    direct: Option<bool>,
    ready: i32,
    container_concurrency: usize,
    activators: usize,
    activity: AppActivity,
    /// When this process first saw activators in the path; none: they are not.
    proxied_since: Option<Instant>,
    answers: bool,
    forgetting: Forgetting,
}

impl Keeper {
    /// Watches begin with the first decision, or when slices of an earlier agent are found, and end when the returned value and all its clones
    /// are dropped. A cluster without KPA policies is not watched; the agent needs no rights for it, because being refused the list of slices
    /// counts as none.
    pub fn new(client: Client, watched: Option<String>, tasks: Tasks) -> Arc<Self> {
        let (services, write_services) = reflector::store();
        let (slices, write_slices) = reflector::store();
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            client,
            watched,
            began: Instant::now(),
            services,
            slices,
            idle: Mutex::new(Some((write_services, write_slices))),
            probe: Probe::new(None),
            apps: Mutex::default(),
            changed: Notify::new(),
            tasks,
        })
    }

    /// Begins to watch if an earlier agent has written slices: without a policy no decision begins it, and a slice whose Service is not public
    /// any more would stay. An agent that may not list slices has written none. Never returns.
    pub async fn look_for_left_slices(&self) {
        let api: Api<EndpointSlice> = match &self.watched {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let ours = ListParams::default().labels(&format!("{PATH}={PUBLIC},{MANAGED_BY}={MANAGER}")).limit(1);
        loop {
            match api.list_metadata(&ours).await {
                Ok(found) if found.items.is_empty() => break,
                Ok(_) => break self.start(),
                Err(kube::Error::Api(status)) if status.code == 403 => break,
                Err(error) => tracing::warn!(%error, "slices of an earlier agent cannot be looked for, will retry"),
            }
            tokio::time::sleep(STEERED_WITHIN).await;
        }
        future::pending().await
    }

    fn start(&self) {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((write_services, write_slices)) = idle else { return };
        let of_services = watcher::Config::default().labels(&format!("{PATH}={PUBLIC}"));
        let of_services = watcher(Api::<Service>::all(self.client.clone()), of_services);
        let of_slices = watcher(Api::<EndpointSlice>::all(self.client.clone()), watcher::Config::default().labels(PATH));
        let weak = self.me.clone();
        let (tracker, never) = (TaskTracker::new(), CancellationToken::new());
        // Not started again: what a panic left in the stores may be incomplete.
        self.tasks.spawn_once(&tracker, never.clone(), "path-watch", |_| async move {
            let one = of_services.backoff(WatchBackoff::default()).reflect(write_services).map_ok(|event| matches!(event, Event::Init));
            let other = of_slices.backoff(WatchBackoff::default()).reflect(write_slices).map_ok(|event| matches!(event, Event::Init));
            let mut events = futures::stream::select(one.boxed(), other.boxed());
            let mut failing = false;
            while let Some(event) = events.next().await {
                let Some(keeper) = weak.upgrade() else { return };
                match event {
                    Ok(true) => {} // a list begins, and may still fail
                    Ok(false) => {
                        failing = false;
                        keeper.changed.notify_one();
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut failing, true) {
                            tracing::warn!(%error, "Services and EndpointSlices cannot be watched; continuing with what is known");
                        }
                    }
                }
            }
        });
        let weak = self.me.clone();
        self.tasks.spawn(&tracker, never, "path-keeper", OnFailure::Restart, move |_| {
            let weak = weak.clone();
            async move {
                while let Some(keeper) = weak.upgrade() {
                    let settled = keeper.keep().await;
                    let again = if settled { STEERED_WITHIN } else { AGAIN };
                    let _ = tokio::time::timeout(again, keeper.changed.notified()).await;
                }
            }
        });
    }

    /// Applies a decision to the path (if `apply`; else nothing is written), and returns the replicas to write now, if
    /// any. An app without a public Service has no activator in its path, and keeps its last pod.
    pub fn carry_out(&self, key: &Key, spec: &KpaSpec, limits: &Limits, record: &DecisionRecord, apply: bool) -> Option<i32> {
        self.start();
        let (Steps::Kpa(steps), Observation::Kpa(seen)) = (&record.steps, &record.inputs) else { return record.want };
        if !apply || self.service(key).is_none() {
            return record.want.map(|want| want.max(record.current.min(1)));
        }
        let ready = if let Reading::Value(ready) = seen.ready { ready } else { record.current };
        let now = Instant::now();
        let mut apps = self.apps();
        let observed = |before: Option<&SteeredApp>| AppObservation {
            at: now.duration_since(self.began).as_secs_f64(),
            want: record.want,
            replicas: record.current,
            ready,
            proxied_for: before.and_then(|app| app.proxied_since).map(|since| now.duration_since(since).as_secs_f64()),
            answers: before.is_some_and(|app| app.answers),
        };
        let before = apps.get(key);
        let observed = observed(before);
        let mut activity = before.map_or_else(|| AppActivity::initial(&observed), |app| app.activity);
        let step = activity.step(spec, limits, &observed);
        let total = spec.resolve().total;
        let app = SteeredApp {
            at: now,
            direct: record.want.map(|_| zero::serves_directly(step.want, steps.excess_burst_capacity)),
            ready,
            container_concurrency: spec.container_concurrency as usize,
            activators: capacity::activators(f64::from(ready), total, spec.target_burst_capacity, ACTIVATOR_CAPACITY) as usize,
            activity,
            proxied_since: before.and_then(|app| app.proxied_since),
            answers: observed.answers,
            forgetting: before.map(|app| app.forgetting.clone()).unwrap_or_default(),
        };
        apps.insert(key.clone(), app);
        drop(apps);
        self.changed.notify_one();
        step.apply.then_some(step.want)
    }

    /// Whether activators or pods are in the path of an app, as it was written; none: nothing was written.
    pub fn through(&self, key: &Key) -> Option<Through> {
        self.public(key).and_then(|slice| slices::read_public(&slice)).map(|path| path.through)
    }

    /// Updates all public slices. False: a write failed, or activators are wanted but not ready yet.
    async fn keep(&self) -> bool {
        let steered: Vec<(Key, SteeredApp)> = {
            let mut apps = self.apps();
            apps.retain(|key, app| app.at.elapsed() < STEERED_WITHIN || self.service(key).is_some());
            apps.iter().filter(|(_, app)| app.at.elapsed() < STEERED_WITHIN).map(|(key, app)| (key.clone(), app.clone())).collect()
        };
        let kept = future::join_all(steered.iter().map(|(key, app)| self.keep_one(key, app))).await;
        self.forget_slices().await;
        kept.into_iter().zip(&steered).all(|(kept, (key, _))| match kept {
            Ok(settled) => settled,
            Err(error) => {
                tracing::warn!(app = %key, %error, "the public EndpointSlice cannot be written");
                false
            }
        })
    }

    async fn keep_one(&self, key: &Key, app: &SteeredApp) -> Result<bool, kube::Error> {
        let Some(service) = self.service(key) else { return Ok(true) };
        let written = self.public(key);
        let before = written.as_deref().and_then(slices::read_public);
        let port = before.as_ref().map_or_else(|| self.free_port(), |path| path.activator_port);
        let all = self.activators();
        let chosen: Vec<IpAddr> = choose(key, &all, app.activators).into_iter().map(|(address, _)| address).collect();
        let direct = app.direct.unwrap_or_else(|| before.as_ref().is_some_and(|path| path.through == Through::Pods));
        let answers = !direct && before.is_some() && self.answer(key, &all, &chosen).await;
        let through = if app.ready > 0 && (direct || !answers) { Through::Pods } else { Through::Activator };
        let path = PublicPath { through, activator_port: port, activators: chosen, container_concurrency: app.container_concurrency };
        let pods: Vec<Arc<EndpointSlice>> =
            self.slices.state().into_iter().filter(|slice| slices::whose(slice) == Some((key.clone(), false))).collect();
        let pods: Vec<&EndpointSlice> = pods.iter().map(|slice| &**slice).collect();
        let slice = slices::public_slice(key, &public(&service), &path, &pods);
        if written.as_deref().is_none_or(|written| !slices::same(written, &slice)) {
            if before.as_ref().map(|path| path.through) != Some(through) {
                tracing::info!(app = %key, through = through.word(), ready = app.ready, "path");
            }
            let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
            api.patch(&slice.name_any(), &PatchParams::apply(slices::MANAGER).force(), &Patch::Apply(&slice)).await?;
        }
        // Only now, when clients have the app's own path.
        let forgetting = self.forget(key, &service, &app.forgetting).await;
        if let Some(app) = self.apps().get_mut(key) {
            app.answers = answers;
            app.proxied_since = (through == Through::Activator).then(|| app.proxied_since.unwrap_or_else(Instant::now));
            app.forgetting = forgetting.unwrap_or_else(|| app.forgetting.clone());
        }
        // Activators that are wanted but not ready yet are probed again soon.
        Ok(answers || direct)
    }

    /// Deletes what leads past the path of an app, if that is due; how far that is then.
    async fn forget(&self, key: &Key, service: &Service, before: &Forgetting) -> Option<Forgetting> {
        let now = Instant::now();
        let after = before.next(service, now)?;
        Some(match stale::forget_addresses(&self.client, &key.namespace, &service.name_any()).await {
            Ok(()) => after,
            Err(error) => after.failed(service, now, &error),
        })
    }

    /// Deletes the slices of Services that are not public any more.
    async fn forget_slices(&self) {
        // Before the first list nothing is known of them.
        if self.services.wait_until_ready().now_or_never().is_none() {
            return;
        }
        for slice in self.slices.state() {
            let Some((key, true)) = slices::whose(&slice) else { continue };
            if self.watched.as_ref().is_some_and(|watched| *watched != key.namespace) {
                continue;
            }
            let public = |service: &Service| {
                service.namespace().as_ref() == Some(&key.namespace) && slices::name(&service.name_any()) == slice.name_any()
            };
            if self.services.find(public).is_none()
                && slices::is_ours(&slice)
                && let Err(error) = stale::forget_slice(&self.client, &key.namespace, &slice).await
            {
                tracing::warn!(app = %key, %error, "the EndpointSlice of a Service that is not public any more cannot be deleted");
            }
        }
    }

    /// Whether all chosen activators have the app's port open.
    async fn answer(&self, key: &Key, all: &[(IpAddr, SocketAddr)], chosen: &[IpAddr]) -> bool {
        let probe = self.probe.with_path(format!("/apps/{}/{}", key.namespace, key.policy));
        let asked = all.iter().filter(|(address, _)| chosen.contains(address)).map(|(_, admin)| probe.ask(*admin));
        !chosen.is_empty() && future::join_all(asked).await.iter().all(Result::is_ok)
    }

    /// All ready activators, with the addresses of their admin ports.
    fn activators(&self) -> Vec<(IpAddr, SocketAddr)> {
        let mut found = Vec::new();
        for slice in self.slices.state() {
            let ours = slice.labels().get(PATH).is_some_and(|path| path == ACTIVATORS_OF_ALL);
            let Some(admin) = slices::port_of(&slice, ADMIN_PORT).filter(|_| ours) else { continue };
            let ready = slice.endpoints.iter().filter(|it| it.conditions.as_ref().is_none_or(|it| it.ready != Some(false)));
            let addresses = ready.flat_map(|endpoint| &endpoint.addresses).filter_map(|address| address.parse().ok());
            found.extend(addresses.map(|address: IpAddr| (address, SocketAddr::new(address, admin))));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn free_port(&self) -> u16 {
        let taken: Vec<u16> =
            self.slices.state().iter().filter_map(|slice| slices::read_public(slice)).map(|path| path.activator_port).collect();
        PORTS.into_iter().find(|port| !taken.contains(port)).unwrap_or(*PORTS.end())
    }

    fn service(&self, key: &Key) -> Option<Arc<Service>> {
        let of = |service: &Service| {
            service.namespace().as_deref() == Some(&key.namespace) && service.labels().get(slices::POLICY) == Some(&key.policy)
        };
        self.services.find(of)
    }

    fn public(&self, key: &Key) -> Option<Arc<EndpointSlice>> {
        let service = self.service(key)?;
        self.slices.get(&ObjectRef::new(&slices::name(&service.name_any())).within(&key.namespace))
    }

    fn apps(&self) -> MutexGuard<'_, BTreeMap<Key, SteeredApp>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keeper({} apps)", self.apps().len())
    }
}

fn public(service: &Service) -> PublicService {
    let port = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()?.first()?.name.clone());
    PublicService { name: service.name_any(), port_name: port, labels: service.labels().clone(), owner: service.owner_ref(&()) }
}

/// Chooses `wanted` activators for an app: always the same ones as long as they exist, and different ones for each app.
fn choose(key: &Key, all: &[(IpAddr, SocketAddr)], wanted: usize) -> Vec<(IpAddr, SocketAddr)> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let weight = |address: &IpAddr| {
        let mut hasher = DefaultHasher::new();
        (key, address).hash(&mut hasher);
        hasher.finish()
    };
    let mut chosen = all.to_vec();
    chosen.sort_by_key(|(address, _)| weight(address));
    chosen.truncate(wanted);
    chosen.sort_unstable();
    chosen
}
