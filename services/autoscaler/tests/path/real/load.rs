//! An open-loop load on an app's pods. Each request goes to the ready pod with the fewest requests, as in a mesh and in the paper's queue.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::machine::Machine;

/// Interval of listing the ready pods, and the wait before a request without a pod tries again.
const LOOK: Duration = Duration::from_millis(200);
const AGAIN: Duration = Duration::from_millis(20);

/// The ready pods of an app.
#[derive(Clone)]
pub struct Pods {
    known: Arc<Mutex<BTreeMap<String, Arc<AtomicU32>>>>,
    http: reqwest::Client,
    _looking: Arc<AbortOnDropHandle<()>>,
}

/// Results of requests.
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests sent.
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

impl Pods {
    /// The pods with this label `app`; the list is updated until this is dropped.
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

    /// Number of ready pods.
    pub fn ready(&self) -> usize {
        self.known.lock().unwrap().len()
    }

    fn enter(&self) -> Option<(String, Inside)> {
        let known = self.known.lock().unwrap();
        let (address, inside) = known.iter().min_by_key(|(_, inside)| inside.load(Relaxed))?;
        inside.fetch_add(1, Relaxed);
        Some((address.clone(), Inside(inside.clone())))
    }

    /// Sends one request. Returns whether it is answered before `end`; if its pod is gone, it goes to another one.
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

fn serves(pod: &serde_json::Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"));
    ready && pod["metadata"]["deletionTimestamp"].is_null()
}
