//! A metric of which there is one value per cluster, or per agent in a cluster, that is there now.
//!
//! Invariant: a value that is shown before and after an update is there at every moment of it, so that no scrape misses a cluster.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What a value is about, such as the cluster.
pub type Labels = Vec<(&'static str, String)>;

/// The values of one metric; a clone is the same ones.
#[derive(Clone, Default)]
pub struct PresentGauges {
    family: Family<Labels, Gauge>,
    shown: Arc<Mutex<HashSet<Labels>>>,
}

impl PresentGauges {
    /// Registers the metric, without values.
    pub fn register(&self, registry: &mut Registry, name: &str, help: &str) {
        registry.register(name, help, self.family.clone());
    }

    /// Shows these values and no others.
    pub fn show(&self, values: impl IntoIterator<Item = (Labels, i64)>) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut present = HashSet::new();
        for (labels, value) in values {
            self.family.get_or_create(&labels).set(value);
            present.insert(labels);
        }
        for gone in shown.difference(&present) {
            self.family.remove(gone);
        }
        *shown = present;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_that_stays_is_there_while_others_change() {
        let (gauges, mut registry) = (PresentGauges::default(), Registry::default());
        gauges.register(&mut registry, "link", "Help");
        let scrape = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        let of = |cluster: &str, value| (vec![("cluster", cluster.to_owned())], value);
        let line = |cluster: &str, value: i64| format!("link{{cluster=\"{cluster}\"}} {value}");
        gauges.show([of("a", 1), of("b", 1)]);
        let next = ["a", "c"].into_iter().map(|cluster| {
            assert!(scrape().iter().any(|line| line.contains("\"a\"")), "it is missing before {cluster} is set: {:?}", scrape());
            of(cluster, 2)
        });
        gauges.show(next);
        let mut found = scrape();
        found.sort_unstable();
        assert_eq!(found, [line("a", 2), line("c", 2)]);
    }
}
