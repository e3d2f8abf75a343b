//! Usage of pods from metrics.k8s.io. Policies that ask at about the same time share one reading of their whole namespace.
//!
//! Invariant: every reading has the time at which it was measured; and a shared reading is used only while it is recent enough for the policy
//! that asks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::AsyncReadExt;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::ListParams;
use serde::Deserialize;
use tokio::time::Instant;

use super::pods::seconds;
use super::target::{CallError, within};

/// A request costs about as much as this many pods in its answer (measured by `drover bench autoscaler`).
const PODS_PER_REQUEST: usize = 32;

/// Amounts of resources in thousandths, by name. The names are shared, because all pods of a namespace use the same few.
type Amounts = Box<[(Arc<str>, i64)]>;

/// Usage of one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUsage {
    /// When it was measured, in seconds since 1970.
    pub at: f64,
    /// Seconds over which it was measured.
    pub window: f64,
    /// Amounts by container.
    containers: Box<[(Arc<str>, Amounts)]>,
}

impl PodUsage {
    /// Usage of one container.
    pub fn container(&self, name: &str) -> Option<BTreeMap<String, i64>> {
        let (_, amounts) = self.containers.iter().find(|(own, _)| **own == *name)?;
        Some(owned(amounts))
    }

    /// Usage summed over the containers; only resources that all of them have.
    pub fn total(&self) -> BTreeMap<String, i64> {
        let mut containers = self.containers.iter().map(|(_, amounts)| amounts);
        let mut sums = containers.next().map(owned).unwrap_or_default();
        for container in containers {
            let container = owned(container);
            sums.retain(|name, _| container.contains_key(name));
            for (name, sum) in &mut sums {
                *sum = sum.saturating_add(container[name]);
            }
        }
        sums
    }
}

fn owned(amounts: &Amounts) -> BTreeMap<String, i64> {
    amounts.iter().map(|(name, amount)| (name.to_string(), *amount)).collect()
}

/// Usage of pods, by name.
pub type Usage = HashMap<String, Arc<PodUsage>>;

/// A policy's query for the usage of its pods.
#[derive(Clone, Copy, Debug)]
pub struct UsageQuery<'a> {
    pub namespace: &'a str,
    /// Selector of the policy's pods, used if only these are read.
    pub selector: &'a str,
    /// Number of pods in the whole namespace; none: unknown.
    pub pods: Option<usize>,
    /// Maximum age of a shared reading.
    pub young: Duration,
}

/// Readings that policies share, by namespace.
#[derive(Debug, Default)]
pub struct UsageReader(Mutex<HashMap<String, Arc<tokio::sync::Mutex<NamespaceUsage>>>>);

#[derive(Debug, Default)]
struct NamespaceUsage {
    rate: Rate,
    answer: Option<SharedReading>,
}

#[derive(Debug)]
struct SharedReading {
    began: Instant,
    ended: Instant,
    found: Result<Arc<Usage>, String>,
}

impl UsageReader {
    /// Usage of at least the selected pods. A call that comes while another one reads the same namespace waits for that reading.
    ///
    /// # Errors
    /// If the metrics server does not answer or refuses.
    pub async fn read(&self, client: &Client, query: UsageQuery<'_>) -> Result<Arc<Usage>, String> {
        let asked = Instant::now();
        let shared = self.all().entry(query.namespace.to_owned()).or_default().clone();
        let mut shared = shared.lock().await;
        let others = shared.rate.count(asked, query.young);
        if query.pods.is_none_or(|pods| pods > PODS_PER_REQUEST * others) {
            drop(shared);
            return list(client, query.namespace, Some(query.selector)).await.map(Arc::new);
        }
        if let Some(SharedReading { began, ended, found }) = &shared.answer {
            // The age of a refusal counts from its end, because waiting for it may take longer than the maximum age.
            let since = if found.is_ok() { began } else { ended };
            if *ended >= asked || since.elapsed() < query.young {
                return found.clone();
            }
        }
        // The old reading is dropped first: for a large namespace it is the largest thing in memory.
        shared.answer = None;
        let began = Instant::now();
        let found = list(client, query.namespace, None).await.map(Arc::new);
        shared.answer = Some(SharedReading { began, ended: Instant::now(), found: found.clone() });
        found
    }

    /// Forgets a namespace that has no policies any more.
    pub fn forget(&self, namespace: &str) {
        self.all().remove(namespace);
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<NamespaceUsage>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many policies ask within the maximum age of a reading.
#[derive(Debug, Default)]
struct Rate {
    /// When the present period began.
    since: Option<Instant>,
    /// Queries in the present period.
    now: usize,
    /// Queries in the period just before it.
    before: usize,
}

impl Rate {
    /// Counts one more query, and returns how many came within this period or the one before it, whichever is more.
    fn count(&mut self, at: Instant, stretch: Duration) -> usize {
        let passed = self.since.map(|since| at.saturating_duration_since(since));
        match passed {
            Some(passed) if passed < stretch => self.now += 1,
            _ => {
                let just_before = passed.is_some_and(|passed| passed < 2 * stretch);
                (self.since, self.before, self.now) = (Some(at), if just_before { self.now } else { 0 }, 1);
            }
        }
        self.now.max(self.before)
    }
}

/// Reads the usage of the pods of a namespace: all, or those that a selector selects.
async fn list(client: &Client, namespace: &str, selector: Option<&str>) -> Result<Usage, String> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let params = selector.map_or_else(ListParams::default, |selector| ListParams::default().labels(selector));
    let request = kube::core::Request::new(path).list(&params);
    let request: Request<Vec<u8>> = request.map_err(|error| error.to_string())?;
    let answer = within(async {
        let mut body = Vec::new();
        client.request_stream(request).await?.read_to_end(&mut body).await.map_err(kube::Error::ReadEvents)?;
        Ok(body)
    });
    let answer = answer.await.map_err(|trouble: CallError| trouble.to_string())?;
    let list: List<'_> = serde_json::from_slice(&answer).map_err(|error| format!("the answer cannot be read: {error}"))?;
    let mut names = HashSet::new();
    Ok(list.items.into_iter().filter_map(|item| item.read(&mut names)).collect())
}

/// The answer in a form that is cheap to parse: labels are skipped, and texts are not copied (none of them contains escapes).
#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    items: Vec<Item<'a>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    metadata: Named<'a>,
    timestamp: Time,
    window: &'a str,
    #[serde(borrow)]
    containers: Vec<Container<'a>>,
}

#[derive(Deserialize)]
struct Named<'a> {
    name: &'a str,
}

#[derive(Deserialize)]
struct Container<'a> {
    name: &'a str,
    #[serde(borrow)]
    usage: BTreeMap<&'a str, &'a str>,
}

impl Item<'_> {
    /// Parses an item. An amount that cannot be parsed is missing, and never zero.
    fn read(self, names: &mut HashSet<Arc<str>>) -> Option<(String, Arc<PodUsage>)> {
        let mut shared = |name: &str| {
            let known = names.get(name).cloned();
            known.unwrap_or_else(|| {
                let name: Arc<str> = name.into();
                names.insert(name.clone());
                name
            })
        };
        let mut containers = Vec::with_capacity(self.containers.len());
        for container in &self.containers {
            let amounts = container.usage.iter().filter_map(|(name, text)| Some((shared(name), drover_quantity::milli(text).ok()?)));
            let amounts: Amounts = amounts.collect();
            containers.push((shared(container.name), amounts));
        }
        let usage = PodUsage { at: seconds(&self.timestamp), window: duration(self.window)?, containers: containers.into() };
        Some((self.metadata.name.to_owned(), Arc::new(usage)))
    }
}

/// Parses a Go duration such as `10.062s`, `1m0s` or `900ms`.
fn duration(text: &str) -> Option<f64> {
    let mut rest = text.trim();
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(&rest[digits..], |end| &rest[digits..digits + end]);
        sum += number
            * match unit {
                "h" => 3_600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[digits + unit.len()..];
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use futures::future::join_all;
    use http::{Request, Response, StatusCode};
    use kube::Client;
    use kube::client::Body;

    use super::{PodUsage, UsageQuery, UsageReader, duration};

    const YOUNG: Duration = Duration::from_secs(3);

    /// A metrics server that always answers with this status, and the URIs that it was asked for.
    fn server(status: StatusCode) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            heard.lock().unwrap().push(request.uri().to_string());
            let body = r#"{"items":[{"metadata":{"name":"a"},"timestamp":"2026-11-21T21:00:00Z","window":"10s","containers":[]}]}"#;
            let response = Response::builder().status(status).body(Body::from(body.as_bytes().to_vec()));
            async move { response }
        });
        (Client::new(service, "default"), asked)
    }

    fn query(pods: Option<usize>) -> UsageQuery<'static> {
        UsageQuery { namespace: "shop", selector: "app=web", pods, young: YOUNG }
    }

    #[tokio::test(start_paused = true)]
    async fn read_shares_a_recent_reading_of_the_namespace() {
        let (client, asked) = server(StatusCode::OK);
        let usages = UsageReader::default();
        for round in 1..=3 {
            let answers = join_all((0..40).map(|_| usages.read(&client, query(Some(30))))).await;
            assert!(answers.iter().all(|answer| answer.as_ref().unwrap().contains_key("a")));
            tokio::time::advance(YOUNG / 2).await;
            usages.read(&client, query(Some(30))).await.unwrap();
            assert_eq!(asked.lock().unwrap().len(), round);
            tokio::time::advance(YOUNG / 2).await;
        }
        assert!(asked.lock().unwrap().iter().all(|uri| !uri.contains("labelSelector")), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn read_uses_the_selector_for_few_policies_in_a_large_namespace() {
        let (client, asked) = server(StatusCode::OK);
        let usages = UsageReader::default();
        // Each policy asks alone: the namespace is too large for one, or its size is unknown.
        for pods in [Some(5_000), None, Some(33)] {
            usages.read(&client, query(pods)).await.unwrap();
            tokio::time::advance(3 * YOUNG).await;
        }
        assert_eq!(asked.lock().unwrap().iter().filter(|uri| uri.contains("labelSelector=app%3Dweb")).count(), 3, "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn read_shares_a_refusal_until_it_is_old() {
        let (client, asked) = server(StatusCode::SERVICE_UNAVAILABLE);
        let usages = UsageReader::default();
        let answers = join_all((0..40).map(|_| usages.read(&client, query(Some(3))))).await;
        assert!(answers.iter().all(Result::is_err));
        let refused = asked.lock().unwrap().len();
        usages.read(&client, query(Some(3))).await.unwrap_err();
        assert_eq!(asked.lock().unwrap().len(), refused, "{asked:?}");
        tokio::time::advance(YOUNG).await;
        usages.read(&client, query(Some(3))).await.unwrap_err();
        assert!(asked.lock().unwrap().len() > refused, "{asked:?}");
    }

    #[test]
    fn duration_parses_go_notation() {
        for (text, seconds) in
            [("10s", Some(10.0)), ("1m0.5s", Some(60.5)), ("1h2m", Some(3_720.0)), ("900ms", Some(0.9)), ("x", None), ("5", None)]
        {
            assert_eq!(duration(text), seconds, "{text}");
        }
    }

    #[test]
    fn total_omits_resources_that_a_container_lacks() {
        let of = |pairs: &[(&str, i64)]| pairs.iter().map(|(name, value)| ((*name).into(), *value)).collect();
        let containers = [("a".into(), of(&[("cpu", 100), ("memory", 5)])), ("b".into(), of(&[("cpu", 20)]))].into();
        let usage = PodUsage { at: 0.0, window: 10.0, containers };
        assert_eq!(usage.total(), [("cpu".to_owned(), 120)].into());
        assert_eq!((usage.container("b"), usage.container("c")), (Some([("cpu".to_owned(), 20)].into()), None));
    }
}
