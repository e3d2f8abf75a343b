//! An open-loop load on an app's pods, each request to the ready pod with the fewest: what a mesh does, and the paper's queue before all pods.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::machine::Machine;

/// Between two looks which pods are ready, and before a request that found none tries again.
const LOOK: Duration = Duration::from_millis(200);
const AGAIN: Duration = Duration::from_millis(20);

/// The ready pods of an app.
#[derive(Clone)]
pub struct Pods {
    known: Arc<Mutex<BTreeMap<String, Arc<AtomicU32>>>>,
    http: reqwest::Client,
    _looking: Arc<AbortOnDropHandle<()>>,
}

/// What came of requests.
#[derive(Debug, Default)]
pub struct Tally {
    /// Sent.
    pub arrived: AtomicU32,
    /// Answered in time.
    pub served: AtomicU32,
    /// Not answered in time.
    pub expired: AtomicU32,
}

/// A request inside a pod.
struct Inside(Arc<AtomicU32>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Pods {
    /// Of the app with this label `app`; looked for until dropped.
    pub fn of(machine: &Machine, app: &str) -> Self {
        let known: Arc<Mutex<BTreeMap<String, Arc<AtomicU32>>>> = Arc::default();
        let (path, machine, kept) = (format!("api/v1/namespaces/default/pods?labelSelector=app%3D{app}"), machine.clone(), known.clone());
        let looking = tokio::spawn(async move {
            loop {
                if let Some(list) = machine.find(&path).await {
                    let ready = list["items"].as_array().unwrap().iter().filter(|pod| serves(pod));
                    let addresses: Vec<&str> = ready.filter_map(|pod| pod["status"]["podIP"].as_str()).collect();
                    let mut known = kept.lock().unwrap();
                    known.retain(|address, _| addresses.contains(&address.as_str()));
                    for address in addresses {
                        known.entry(address.to_owned()).or_default();
                    }
                }
                sleep(LOOK).await;
            }
        });
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { known, http, _looking: Arc::new(AbortOnDropHandle::new(looking)) }
    }

    /// How many there are.
    pub fn ready(&self) -> usize {
        self.known.lock().unwrap().len()
    }

    fn enter(&self) -> Option<(String, Inside)> {
        let known = self.known.lock().unwrap();
        let (address, inside) = known.iter().min_by_key(|(_, inside)| inside.load(Relaxed))?;
        inside.fetch_add(1, Relaxed);
        Some((address.clone(), Inside(inside.clone())))
    }

    /// One request; whether it is answered until `end`. One that finds its pod gone goes to another.
    async fn ask(&self, end: Instant) -> bool {
        while Instant::now() < end {
            if let Some((address, _inside)) = self.enter() {
                let answer = async { self.http.get(format!("http://{address}:8080/")).send().await?.error_for_status()?.bytes().await };
                match timeout_at(end, answer).await {
                    Ok(Ok(_)) => return true,
                    Ok(Err(_)) => {}
                    Err(_) => return false,
                }
            }
            sleep(AGAIN).await;
        }
        false
    }

    /// Requests per second that they answer when each always has `waiting` more to do, after `warm` and for `during`.
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

    /// Sends what is due by `rates` (per second, second by second), each request to be answered within `patience`; waits for the last one.
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

/// When requests are due: as evenly as the rates allow.
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

fn serves(pod: &serde_json::Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"));
    ready && pod["metadata"]["deletionTimestamp"].is_null()
}
