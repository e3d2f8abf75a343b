//! One observation of a workload, on which its policy decides.
//!
//! Invariant: a value that could not be read, or is too old, is absent in the observation; nothing here replaces it by zero.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_autoscaling::kpa::KpaObservation;
use drover_autoscaling::qlearning::{QLearningObservation, QLearningSpec};
use drover_autoscaling::threshold::{self, ContainerUse, MetricSpec, MetricType, ThresholdObservation, ThresholdSpec};
use drover_autoscaling::{Observation, Policy, PolicyKind, Reading};
use kube::Api;
use kube::api::ListParams;

use super::Context;
use super::inbox::Key;
use super::pods::{Pod, SelectedPods};
use super::target::{CallError, Target, within};
use super::usage::{PodUsage, Usage, UsageQuery};
use crate::policy::Plan;

/// How often per period the metrics of a namespace are read for all its policies together: a reading is then older by at most a third of
/// the period than if the policy had read it itself.
const ANSWERS_A_PERIOD: f64 = 3.0;

/// An observation, and what could not be read.
#[derive(Clone, Debug)]
pub struct Observed {
    pub observation: Observation,
    /// What could not be read.
    pub trouble: Option<String>,
    /// Ready pods.
    pub ready: i32,
}

/// What one observation remembers for the next.
#[derive(Clone, Debug, Default)]
pub struct ObserverMemory {
    /// When the last observation was made, and how many pods there were.
    before: Option<(f64, i32)>,
    /// The total of expired requests at that time.
    expired: Option<f64>,
    /// The workload's pods.
    selected: Option<SelectedPods>,
}

/// Observes one workload.
pub struct Observer<'a> {
    /// Everything that the workers share.
    pub context: &'a Context,
    /// The policy.
    pub key: &'a Key,
    /// The policy's specification.
    pub plan: &'a Plan,
    /// The workload.
    pub target: &'a Target,
}

impl Observer<'_> {
    /// Observes what `policy` needs.
    pub async fn observe(&self, policy: &Policy, memory: &mut ObserverMemory) -> Observed {
        let pods = self.pods(&mut memory.selected).await;
        let now = self.context.clock.now();
        let ready = pods.as_ref().map_or(0, |pods| count(pods.iter().filter(|pod| pod.serves()).count()));
        let (observation, trouble) = match policy {
            Policy::Threshold(_) if self.plan.kind() == PolicyKind::QLearning && self.query("cpu").is_some() => {
                self.relief(pods, now).await
            }
            Policy::Threshold(spec) => self.threshold(spec, pods, now).await,
            Policy::Kpa(_) => self.kpa(pods, now).await,
            Policy::QLearning(spec) => self.qlearning(spec, pods, now, memory).await,
        };
        Observed { observation, trouble, ready }
    }

    /// The workload's pods, from the watch, or listed while the watch is broken.
    async fn pods(&self, known: &mut Option<SelectedPods>) -> Result<Vec<Arc<Pod>>, CallError> {
        let Context { client, pods, .. } = self.context;
        if pods.whole() {
            return Ok(pods.select(&self.key.0, &self.target.selector, &self.target.selector_text, known));
        }
        let api: Api<Pod> = Api::namespaced(client.clone(), &self.key.0);
        let list = within(api.list(&ListParams::default().labels(&self.target.selector_text))).await?;
        Ok(list.items.into_iter().map(Arc::new).collect())
    }

    /// Current usage of these pods, without values that are too old.
    async fn usage(&self, pods: &[Arc<Pod>], now: f64) -> Result<Usage, String> {
        let namespace = &self.key.0;
        let young = Duration::from_secs_f64(self.plan.spec.scaling.period() / ANSWERS_A_PERIOD);
        let query = UsageQuery { namespace, selector: &self.target.selector_text, pods: self.context.pods.count(namespace), young };
        let read = self.context.usages.read(&self.context.client, query).await;
        let read = read.map_err(|trouble| format!("metrics.k8s.io: {trouble}"))?;
        let of = |pod: &Arc<Pod>| Some((pod.seen.name.clone(), read.get(&pod.seen.name)?.clone()));
        let mut usage: Usage = pods.iter().filter_map(of).collect();
        if usage.is_empty() {
            return Err("metrics.k8s.io has no metrics of these pods".to_owned());
        }
        usage.retain(|_, usage| now - usage.at <= self.stale());
        if usage.is_empty() { Err(format!("all metrics of these pods are older than {:.0} s", self.stale())) } else { Ok(usage) }
    }

    async fn threshold(&self, spec: &ThresholdSpec, pods: Result<Vec<Arc<Pod>>, CallError>, now: f64) -> (Observation, Option<String>) {
        let mut trouble = None;
        let needs = |kinds: &[MetricType]| spec.metrics.iter().any(|metric| kinds.contains(&metric.kind));
        let resources = spec.metrics.is_empty() || needs(&[MetricType::Resource, MetricType::ContainerResource]);
        let pods = match pods {
            Err(why) => {
                trouble = Some(format!("pods: {why}"));
                Reading::Absent(why.to_string())
            }
            Ok(pods) => {
                let usage = if resources { self.usage(&pods, now).await } else { Ok(Usage::new()) };
                let usage = usage.unwrap_or_else(|why| {
                    trouble = Some(why);
                    Usage::new()
                });
                let containers = needs(&[MetricType::ContainerResource]);
                let mut pods: Vec<_> =
                    pods.iter().map(|pod| measured(pod, usage.get(&pod.seen.name).map(Arc::as_ref), containers)).collect();
                for metric in &spec.metrics {
                    if let Err(why) = self.pods_metric(metric, &mut pods).await {
                        trouble = Some(why);
                    }
                }
                Reading::Value(pods)
            }
        };
        let mut external = BTreeMap::new();
        for metric in &spec.metrics {
            let object = metric.object.as_ref().map(|object| &object.metric.name);
            let Some(name) = object.or(metric.external.as_ref().map(|external| &external.metric.name)) else { continue };
            let reading = self.named(name, now).await;
            if let Some(why) = reading.trouble() {
                trouble = Some(format!("{name} {why}"));
            }
            external.insert(name.clone(), reading.map(milli));
        }
        let seen = ThresholdObservation {
            at: now,
            replicas: self.target.replicas(),
            status_replicas: Some(self.target.status_replicas()),
            pods,
            external,
        };
        (Observation::Threshold(seen), trouble)
    }

    /// The observation for the threshold policy that replaces a learner whose CPU comes from Prometheus: every serving pod gets the same reading.
    async fn relief(&self, pods: Result<Vec<Arc<Pod>>, CallError>, now: f64) -> (Observation, Option<String>) {
        let cpu = match self.query("cpu") {
            Some(query) => self.ask(query).await,
            None => Reading::Absent("no Prometheus query is named `cpu`".to_owned()),
        };
        let trouble = match &pods {
            Ok(_) => cpu.trouble().map(|why| format!("cpu {why}")),
            Err(why) => Some(format!("pods: {why}")),
        };
        let pods = match pods {
            Ok(pods) => {
                Reading::Value(pods.iter().map(|pod| shared_out(pod, cpu.fresh().copied(), now, self.plan.spec.scaling.period())).collect())
            }
            Err(why) => Reading::Absent(why.to_string()),
        };
        let (replicas, status_replicas) = (self.target.replicas(), Some(self.target.status_replicas()));
        (Observation::Threshold(ThresholdObservation { at: now, replicas, status_replicas, pods, external: BTreeMap::new() }), trouble)
    }

    /// Adds a metric of each pod, which only Prometheus has.
    async fn pods_metric(&self, metric: &MetricSpec, pods: &mut [threshold::Pod]) -> Result<(), String> {
        let Some(name) = metric.pods.as_ref().map(|pods| &pods.metric.name) else { return Ok(()) };
        let Some((url, query)) = self.query(name) else { return Err(format!("no Prometheus query is named `{name}`")) };
        let values = self.context.prometheus.by_pod(url, query, self.plan.spec.scaling.stale_after_seconds).await?;
        for pod in pods {
            if let Some(value) = values.get(&pod.name) {
                pod.metrics.insert(name.clone(), milli(*value));
            }
        }
        Ok(())
    }

    async fn kpa(&self, pods: Result<Vec<Arc<Pod>>, CallError>, now: f64) -> (Observation, Option<String>) {
        let ready = match pods {
            Ok(pods) => Reading::Value(count(pods.iter().filter(|pod| pod.serves()).count())),
            Err(why) => Reading::Absent(why.to_string()),
        };
        let (stable, panic) = if let (Some(stable), Some(panic)) = (self.query("stable"), self.query("panic")) {
            (self.ask(stable).await, self.ask(panic).await)
        } else {
            if let Some(query) = self.query("value")
                && let Reading::Value(value) = self.ask(query).await
            {
                self.context.inbox.sample(self.key, now, value);
            }
            self.context.inbox.windows(self.key, now)
        };
        let trouble = [("ready pods", ready.trouble()), ("stable window", stable.trouble())];
        let trouble = trouble.into_iter().find_map(|(name, why)| Some(format!("{name} {}", why?)));
        (Observation::Kpa(KpaObservation { at: now, replicas: self.target.replicas(), ready, stable, panic }), trouble)
    }

    async fn qlearning(
        &self,
        spec: &QLearningSpec,
        pods: Result<Vec<Arc<Pod>>, CallError>,
        now: f64,
        memory: &mut ObserverMemory,
    ) -> (Observation, Option<String>) {
        let cpu = match (self.query("cpu"), pods) {
            (Some(query), _) => self.ask(query).await,
            (None, Err(why)) => Reading::Absent(format!("pods: {why}")),
            (None, Ok(pods)) => match self.usage(&pods, now).await {
                Ok(usage) => share(spec, &pods, &usage).map_or_else(Reading::Absent, Reading::Value),
                Err(why) => Reading::Absent(why),
            },
        };
        let expired = self.expired(now, memory).await;
        let there = self.target.status_replicas();
        let period = self.plan.spec.scaling.period();
        // The number of pods is taken to have changed evenly since the last observation; after a longer gap nothing is known of it.
        let pod_seconds = match memory.before.replace((now, there)) {
            Some((at, pods)) if now - at <= 2.0 * period + 1.0 => Reading::Value((now - at) * f64::from(pods + there) / 2.0),
            Some((at, _)) => Reading::Absent(format!("the last observation was {:.0} s ago", now - at)),
            None => Reading::Absent("this is the first observation".to_owned()),
        };
        let trouble = [("cpu", cpu.trouble()), ("expired", expired.trouble())];
        let trouble = trouble.into_iter().find_map(|(name, why)| Some(format!("{name} {}", why?)));
        (Observation::QLearning(QLearningObservation { at: now, pods: self.target.replicas(), cpu, expired, pod_seconds }), trouble)
    }

    /// Expired requests since the last observation: pushed, or the increase of a counter.
    async fn expired(&self, now: f64, memory: &mut ObserverMemory) -> Reading<f64> {
        let Some(query) = self.query("expired") else { return self.context.inbox.expired(self.key, now, self.stale()) };
        let total = match self.ask(query).await {
            Reading::Value(total) => total,
            other => {
                memory.expired = None;
                return other;
            }
        };
        match memory.expired.replace(total) {
            Some(before) if total >= before => Reading::Value(total - before),
            Some(_) => Reading::Absent("the total of expired requests was reset".to_owned()),
            None => Reading::Absent("this is the first reading of the total of expired requests".to_owned()),
        }
    }

    /// A named value: queried from Prometheus if there is a query of this name, otherwise as pushed.
    async fn named(&self, name: &str, now: f64) -> Reading<f64> {
        match self.query(name) {
            Some(query) => self.ask(query).await,
            None => self.context.inbox.value(self.key, name, now, self.stale()),
        }
    }

    fn query(&self, name: &str) -> Option<(&str, &str)> {
        let prometheus = self.plan.spec.source.prometheus.as_ref()?;
        Some((&prometheus.url, prometheus.queries.get(name)?))
    }

    async fn ask(&self, (url, query): (&str, &str)) -> Reading<f64> {
        self.context.prometheus.sum(url, query, self.plan.spec.scaling.stale_after_seconds).await
    }

    fn stale(&self) -> f64 {
        f64::from(self.plan.spec.scaling.stale_after_seconds)
    }
}

/// A pod with its usage; without usage, it is missing to a metric.
fn measured(pod: &Pod, usage: Option<&PodUsage>, containers: bool) -> threshold::Pod {
    let mut seen = threshold::Pod::clone(&pod.seen);
    if !containers {
        seen.containers.clear();
    }
    if let Some(usage) = usage {
        seen.usage = usage.total();
        seen.metric_time = Some(usage.at);
        seen.metric_window = usage.window;
        for (name, ContainerUse { usage: own, .. }) in &mut seen.containers {
            *own = usage.container(name).unwrap_or_default();
        }
    }
    seen
}

/// A pod that uses this share of its request, if it serves; in thousandths of one CPU, whatever its request is.
fn shared_out(pod: &Pod, share: Option<f64>, now: f64, window: f64) -> threshold::Pod {
    let mut seen = threshold::Pod::clone(&pod.seen);
    seen.containers.clear();
    seen.requests = BTreeMap::from([("cpu".to_owned(), 1_000)]);
    if let Some(share) = share.filter(|_| pod.serves()) {
        seen.usage = BTreeMap::from([("cpu".to_owned(), milli(share))]);
        (seen.metric_time, seen.metric_window) = (Some(now), window);
    }
    seen
}

/// CPU of the application container as a share of its request, mean over the ready pods that have a value.
fn share(spec: &QLearningSpec, pods: &[Arc<Pod>], usage: &Usage) -> Result<f64, String> {
    let (mut sum, mut pods_counted) = (0.0, 0u32);
    for pod in pods.iter().filter(|pod| pod.serves()) {
        let container = spec.container.as_ref().unwrap_or(&pod.first);
        let request = pod.seen.containers.get(container).and_then(|container| container.requests.get("cpu")).copied().unwrap_or(0);
        if request <= 0 {
            return Err(format!("container {container} of pod {} requests no cpu", pod.seen.name));
        }
        if let Some(used) = usage.get(&pod.seen.name).and_then(|usage| usage.container(container)?.remove("cpu")) {
            sum += used as f64 / request as f64;
            pods_counted += 1;
        }
    }
    if pods_counted == 0 { Err("no ready pod has metrics".to_owned()) } else { Ok(sum / f64::from(pods_counted)) }
}

/// Converts to thousandths, rounded up.
#[expect(clippy::cast_possible_truncation, reason = "a float casts to the nearest i64")]
fn milli(value: f64) -> i64 {
    (value * 1_000.0).ceil() as i64
}

fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}
