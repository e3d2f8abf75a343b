//! What a mesh and Prometheus measure in the paper's cluster: the CPU of an app's pods, its expired requests, its pods. The agent asks for
//! the first two as it would ask a Prometheus.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use drover_autoscaler::path::demo::replay::{ReadyPods, Tally};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::kit::LIMIT;

/// Interval of reading the number of pods, and how many of them pass between two readings of CPU.
const LOOK: Duration = Duration::from_millis(250);
const LOOKS: u32 = 4;

/// What is measured of one app.
#[derive(Debug)]
pub struct Meter {
    pub name: String,
    pub tally: Arc<Tally>,
    measured: Mutex<Measured>,
}

/// A reading.
#[derive(Clone, Debug)]
pub struct Measured {
    /// CPU of the ready pods, as a share of what they may use: mean of the last second.
    pub cpu: Option<f64>,
    /// Pods that are set.
    pub replicas: i32,
    /// Seconds of all pods that were set, since the beginning.
    pub pod_seconds: f64,
    /// When the number of pods changed, and to what.
    pub changes: Vec<(Instant, i32)>,
}

impl Meter {
    /// Nothing is measured yet.
    pub fn new(name: &str) -> Arc<Self> {
        let measured = Measured { cpu: None, replicas: 1, pod_seconds: 0.0, changes: Vec::new() };
        Arc::new(Self { name: name.to_owned(), tally: Arc::default(), measured: Mutex::new(measured) })
    }

    /// The last reading.
    pub fn read(&self) -> Measured {
        self.lock().clone()
    }

    /// Requests that expired since the beginning.
    pub fn expired(&self) -> u32 {
        self.tally.expired.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures for as long as it is polled. `usage` is the file with the CPU time of a pod.
    pub async fn measure(&self, deployments: &Api<Deployment>, pods: &ReadyPods, usage: impl Fn(&str) -> PathBuf) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut before) = (Instant::now(), HashMap::new());
        for tick in 0_u32.. {
            ticks.tick().await;
            if let Ok(scale) = deployments.get_scale(&self.name).await {
                let now = Instant::now();
                let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
                let mut measured = self.lock();
                measured.pod_seconds += f64::from(measured.replicas) * (now - last).as_secs_f64();
                last = now;
                if measured.replicas != replicas {
                    measured.replicas = replicas;
                    measured.changes.push((now, replicas));
                }
            }
            if tick.is_multiple_of(LOOKS) {
                let used = |uid: String| {
                    let text = std::fs::read_to_string(usage(&uid)).ok()?;
                    Some((uid, (Instant::now(), text.trim().parse::<u64>().ok()?)))
                };
                let now: HashMap<String, (Instant, u64)> = pods.uids().into_iter().filter_map(used).collect();
                // A pod counts from its second reading on; if there is none, the last value stays.
                if let Some(cpu) = share(&before, &now) {
                    self.lock().cpu = Some(cpu);
                }
                before = now;
            }
        }
    }
}

/// CPU between two readings as a share of what pods may use, mean over the pods that are in both.
fn share(before: &HashMap<String, (Instant, u64)>, now: &HashMap<String, (Instant, u64)>) -> Option<f64> {
    let each = now.iter().filter_map(|(uid, (at, used))| {
        let (since, had) = before.get(uid)?;
        let may = (*at - *since).as_secs_f64() * f64::from(LIMIT) / 1_000.0;
        (may > 0.0).then(|| used.saturating_sub(*had) as f64 / 1e9 / may)
    });
    let (sum, pods) = each.fold((0.0, 0.0), |(sum, pods), one| (sum + one, pods + 1.0));
    (pods > 0.0).then_some(sum / pods)
}

/// Answers `NAME cpu` and `NAME expired` as Prometheus answers a query, for as long as it is polled.
pub async fn serve(listener: TcpListener, meters: Vec<Arc<Meter>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let meters = meters.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let answer = answer(&meters, request.uri().query().unwrap_or_default());
                async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer)))) }
            });
            // A connection that breaks is made again by the next query.
            let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn answer(meters: &[Arc<Meter>], query: &str) -> String {
    let asked = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "query").map(|(_, asked)| asked.into_owned());
    let value = asked.as_deref().and_then(|asked| asked.split_once(' ')).and_then(|(name, what)| {
        let meter = meters.iter().find(|meter| meter.name == name)?;
        if what == "cpu" { meter.read().cpu } else { Some(f64::from(meter.expired())) }
    });
    let series: Vec<_> = value.iter().map(|value| json!({"metric": {}, "value": [0.0, value.to_string()]})).collect();
    json!({"status": "success", "data": {"resultType": "vector", "result": series}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_counts_pods_that_were_there_before() {
        let began = Instant::now();
        let at = |second: f64| began + Duration::from_secs_f64(second);
        let before = HashMap::from([("a".to_owned(), (at(0.0), 0)), ("gone".to_owned(), (at(0.0), 0))]);
        // 50 ms in a second, where 100 ms are allowed.
        let now = HashMap::from([("a".to_owned(), (at(1.0), 50_000_000)), ("new".to_owned(), (at(1.0), 9))]);
        assert_eq!(share(&before, &now), Some(0.5));
        assert_eq!(share(&HashMap::new(), &now), None);
    }

    #[test]
    fn answer_is_that_of_the_meter_that_is_asked() {
        let (b, c) = (Meter::new("case-b"), Meter::new("case-c"));
        c.lock().cpu = Some(0.75);
        b.tally.expired.fetch_add(3, Relaxed);
        let ask = |query: &str| -> serde_json::Value { serde_json::from_str(&answer(&[b.clone(), c.clone()], query)).unwrap() };
        assert_eq!(ask("query=case-b+expired&lookback_delta=60s")["data"]["result"][0]["value"][1], "3");
        assert_eq!(ask("query=case-c%20cpu")["data"]["result"][0]["value"][1], "0.75");
        assert_eq!(ask("query=case-b+cpu")["data"]["result"], json!([]), "not measured yet");
    }
}
