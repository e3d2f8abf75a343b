//! An open-loop load on the pods of an app, sent from outside of the cluster: each request goes to the ready pod with the fewest requests, as
//! in a mesh and in the queue of the simulator. The pods of an app that runs in several clusters are one pool.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::task::AbortOnDropHandle;

/// Interval of listing the ready pods, and the wait before a request without a pod tries again.
const LOOK: Duration = Duration::from_millis(200);
const AGAIN: Duration = Duration::from_millis(20);

/// The ready pods of an app; the list is kept up to date until the last clone is dropped.
#[derive(Clone)]
pub struct ReadyPods {
    pool: Arc<Pool>,
    _looking: Arc<AbortOnDropHandle<()>>,
}

struct Pool {
    /// By number of the cluster and address.
    known: Mutex<BTreeMap<(usize, String), Known>>,
    /// Requests that were sent, by cluster.
    sent: Vec<AtomicU32>,
    http: reqwest::Client,
}

struct Known {
    uid: String,
    inside: Arc<AtomicU32>,
}

/// Results of requests.
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests that were due.
    pub arrived: AtomicU32,
    /// Requests answered in time.
    pub served: AtomicU32,
    /// Requests not answered in time.
    pub expired: AtomicU32,
}

/// A request in progress in a pod.
struct Inside(Arc<AtomicU32>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Pool {
    fn known(&self) -> MutexGuard<'_, BTreeMap<(usize, String), Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self, clusters: &[Api<Pod>], labels: &str) {
        loop {
            for (cluster, api) in clusters.iter().enumerate() {
                // A list that fails leaves what is known.
                if let Ok(list) = api.list(&ListParams::default().labels(labels)).await {
                    let address = |pod: Pod| Some((pod.status?.pod_ip?, pod.metadata.uid?));
                    self.found(cluster, list.items.into_iter().filter(serves).filter_map(address).collect());
                }
            }
            sleep(LOOK).await;
        }
    }

    fn found(&self, cluster: usize, ready: BTreeMap<String, String>) {
        let mut known = self.known();
        known.retain(|(of, address), _| *of != cluster || ready.contains_key(address));
        for (address, uid) in ready {
            known.entry((cluster, address)).or_insert_with(|| Known { uid, inside: Arc::default() });
        }
    }

    fn enter(&self) -> Option<(String, Inside)> {
        let known = self.known();
        let ((cluster, address), Known { inside, .. }) = known.iter().min_by_key(|(_, pod)| pod.inside.load(Relaxed))?;
        inside.fetch_add(1, Relaxed);
        self.sent.get(*cluster)?.fetch_add(1, Relaxed);
        Some((address.clone(), Inside(inside.clone())))
    }
}

impl ReadyPods {
    /// The pods with this label `app` in a namespace of these clusters.
    ///
    /// # Errors
    /// There can be no HTTP client.
    pub fn of(clusters: &[Client], namespace: &str, app: &str) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let pool = Arc::new(Pool { known: Mutex::default(), sent: clusters.iter().map(|_| AtomicU32::default()).collect(), http });
        let apis: Vec<Api<Pod>> = clusters.iter().map(|client| Api::namespaced(client.clone(), namespace)).collect();
        let (looked, labels) = (pool.clone(), format!("app={app}"));
        let looking = tokio::spawn(async move { looked.look(&apis, &labels).await });
        Ok(Self { pool, _looking: Arc::new(AbortOnDropHandle::new(looking)) })
    }

    /// Number of ready pods.
    pub fn ready(&self) -> usize {
        self.pool.known().len()
    }

    /// Uids of the ready pods.
    pub fn uids(&self) -> Vec<String> {
        self.pool.known().values().map(|pod| pod.uid.clone()).collect()
    }

    /// Requests that were sent to pods of the cluster with this number.
    pub fn sent(&self, cluster: usize) -> u32 {
        self.pool.sent.get(cluster).map_or(0, |sent| sent.load(Relaxed))
    }

    /// Sends one request. Returns whether it is answered before `end`; if its pod is gone, it goes to another one.
    async fn ask(&self, end: Instant) -> bool {
        while Instant::now() < end {
            if let Some((address, _inside)) = self.pool.enter() {
                let request = self.pool.http.get(format!("http://{address}:8080/"));
                match timeout_at(end, async { request.send().await?.error_for_status()?.bytes().await }).await {
                    Ok(Ok(_)) => return true,
                    Ok(Err(_)) => {}
                    Err(_) => return false,
                }
            }
            sleep(AGAIN).await;
        }
        false
    }

    /// Requests per second that the pods answer when each always has `waiting` requests, measured for `during` after `warm`.
    pub async fn capacity(&self, waiting: usize, warm: Duration, during: Duration) -> f64 {
        let (begin, served) = (Instant::now() + warm, Arc::new(AtomicU32::default()));
        let end = begin + during;
        let mut asking = JoinSet::new();
        for _ in 0..waiting * self.ready() {
            let (pods, served) = (self.clone(), served.clone());
            asking.spawn(async move {
                while pods.ask(end).await {
                    served.fetch_add(u32::from(Instant::now() >= begin), Relaxed);
                }
            });
        }
        while asking.join_next().await.is_some() {}
        f64::from(served.load(Relaxed)) / during.as_secs_f64()
    }

    /// Sends requests at these rates (per second, second by second), each with a limit of `patience`, and waits for the last one.
    pub async fn replay(&self, rates: &[f64], patience: Duration, tally: &Arc<Tally>) {
        let began = Instant::now();
        let mut asked = JoinSet::new();
        for due in due(rates) {
            let due = began + Duration::from_secs_f64(due);
            sleep_until(due).await;
            let (pods, tally) = (self.clone(), tally.clone());
            tally.arrived.fetch_add(1, Relaxed);
            asked.spawn(async move {
                let which = if pods.ask(due + patience).await { &tally.served } else { &tally.expired };
                which.fetch_add(1, Relaxed);
            });
            while asked.try_join_next().is_some() {}
        }
        while asked.join_next().await.is_some() {}
    }
}

/// The times at which requests are due, as even as the rates allow.
pub fn due(rates: &[f64]) -> Vec<f64> {
    let (mut sum, mut due) = (0.0, Vec::new());
    for (second, rate) in rates.iter().enumerate() {
        let mut next = f64::floor(sum) + 1.0;
        while next <= sum + rate {
            due.push(second as f64 + (next - sum) / rate);
            next += 1.0;
        }
        sum += rate;
    }
    due
}

fn serves(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|one| one.type_ == "Ready" && one.status == "True") && pod.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_evenly_at_the_rate_of_each_second() {
        assert_eq!(due(&[2.0, 0.0, 1.0]), [0.5, 1.0, 3.0]);
        assert_eq!(due(&[0.5, 0.5, 0.0]), [2.0], "half a request of one second and half of the next");
        assert_eq!(due(&[20.0; 10]).len(), 200);
    }
}
