//! What pods use, from metrics.k8s.io.

use std::collections::{BTreeMap, HashMap};

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::ListParams;
use serde::Deserialize;

use super::pods::seconds;
use super::target::{Trouble, within};

/// What one pod uses, in thousandths, by container.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUsage {
    /// When it was taken.
    pub at: f64,
    /// Over how long.
    pub window: f64,
    /// By container and resource.
    pub containers: BTreeMap<String, BTreeMap<String, i64>>,
}

impl PodUsage {
    /// Summed over the containers; only resources that all of them have.
    pub fn total(&self) -> BTreeMap<String, i64> {
        let mut containers = self.containers.values();
        let mut sums = containers.next().cloned().unwrap_or_default();
        for container in containers {
            sums.retain(|name, _| container.contains_key(name));
            for (name, sum) in &mut sums {
                *sum = sum.saturating_add(container[name]);
            }
        }
        sums
    }
}

/// Reads the usage of a namespace's pods that a selector selects, by pod.
///
/// # Errors
/// The metrics server has no answer.
pub async fn read(client: &Client, namespace: &str, selector: &str) -> Result<HashMap<String, PodUsage>, Trouble> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let request = kube::core::Request::new(path).list(&ListParams::default().labels(selector));
    let request: Request<Vec<u8>> = request.map_err(|error| Trouble::Unusable(error.to_string()))?;
    let list: List = within(client.request(request)).await?;
    Ok(list.items.into_iter().filter_map(Item::read).collect())
}

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ObjectMeta,
    timestamp: Time,
    window: String,
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    usage: BTreeMap<String, String>,
}

impl Item {
    /// What cannot be read is missing, and never a zero.
    fn read(self) -> Option<(String, PodUsage)> {
        let milli = |usage: BTreeMap<String, String>| {
            usage.into_iter().filter_map(|(name, text)| Some((name, drover_quantity::milli(&text).ok()?))).collect()
        };
        let containers = self.containers.into_iter().map(|container| (container.name, milli(container.usage))).collect();
        Some((self.metadata.name?, PodUsage { at: seconds(&self.timestamp), window: duration(&self.window)?, containers }))
    }
}

/// A Go duration such as `10.062s`, `1m0s` or `900ms`.
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
    use super::{PodUsage, duration};

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, seconds) in
            [("10s", Some(10.0)), ("1m0.5s", Some(60.5)), ("1h2m", Some(3_720.0)), ("900ms", Some(0.9)), ("x", None), ("5", None)]
        {
            assert_eq!(duration(text), seconds, "{text}");
        }
    }

    #[test]
    fn a_resource_that_one_container_does_not_report_has_no_sum() {
        let of = |pairs: &[(&str, i64)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let containers = [("a".to_owned(), of(&[("cpu", 100), ("memory", 5)])), ("b".to_owned(), of(&[("cpu", 20)]))].into();
        let usage = PodUsage { at: 0.0, window: 10.0, containers };
        assert_eq!(usage.total(), of(&[("cpu", 120)]));
    }
}
