//! Metrics of the links of clusters. Names begin with `drover_link_`.

use std::time::{SystemTime, UNIX_EPOCH};

use drover_scheduling::MemberKey;
use drover_service::Common;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::app::LinkHealth;

/// The cluster.
type Gauges = Family<Vec<(&'static str, String)>, Gauge>;

/// The metrics; a clone is the same ones.
#[derive(Clone, Default)]
pub struct LinkMetrics {
    connected: Gauges,
    since: Gauges,
    until: Gauges,
    authority: Gauge,
}

impl LinkMetrics {
    /// Registers the metrics, without values.
    pub fn register(common: &Common) -> Self {
        let metrics = Self::default();
        common.metrics.register(|registry| {
            registry.register("link_connected", "Whether the agent of a linked cluster is connected", metrics.connected.clone());
            registry.register("link_connected_since_seconds", "Unix time since which the agent is connected", metrics.since.clone());
            registry.register("link_certificate_expires_seconds", "Unix time until which its certificate is valid", metrics.until.clone());
            let help = "Unix time until which the authority of links is valid; it is replaced a third of its time earlier";
            registry.register("link_authority_expires_seconds", help, metrics.authority.clone());
        });
        metrics
    }

    /// Shows these clusters and no others.
    pub fn show(&self, links: &[(MemberKey, Option<LinkHealth>)], authority: Option<SystemTime>) {
        for gauges in [&self.connected, &self.since, &self.until] {
            gauges.clear();
        }
        for (member, health) in links {
            let labels = vec![("cluster", member.0.clone())];
            self.connected.get_or_create(&labels).set(i64::from(health.is_some()));
            if let Some(health) = health {
                self.since.get_or_create(&labels).set(health.since.as_second());
                self.until.get_or_create(&labels).set(health.until.as_second());
            }
        }
        let until = authority.and_then(|until| until.duration_since(UNIX_EPOCH).ok());
        self.authority.set(until.map_or(0, |until| i64::try_from(until.as_secs()).unwrap_or(i64::MAX)));
    }
}
