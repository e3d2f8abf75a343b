//! Metrics of the links of clusters. Names begin with `drover_link_`.

use std::time::{SystemTime, UNIX_EPOCH};

use drover_scheduling::MemberKey;
use drover_service::Common;
use prometheus_client::metrics::gauge::Gauge;

use super::gauges::PresentGauges;
use crate::app::LinkHealth;

/// The metrics; a clone is the same ones.
#[derive(Clone, Default)]
pub struct LinkMetrics {
    connected: PresentGauges,
    since: PresentGauges,
    until: PresentGauges,
    authority: Gauge,
}

impl LinkMetrics {
    /// Registers the metrics, without values.
    pub fn register(common: &Common) -> Self {
        let metrics = Self::default();
        common.metrics.register(|registry| {
            metrics.connected.register(registry, "link_connected", "Whether the agent of a linked cluster is connected");
            metrics.since.register(registry, "link_connected_since_seconds", "Unix time since which the agent is connected");
            metrics.until.register(registry, "link_certificate_expires_seconds", "Unix time until which its certificate is valid");
            let help = "Unix time until which the authority of links is valid; it is replaced a third of its time earlier";
            registry.register("link_authority_expires_seconds", help, metrics.authority.clone());
        });
        metrics
    }

    /// Shows these clusters and no others.
    pub fn show(&self, links: &[(MemberKey, Option<LinkHealth>)], authority: Option<SystemTime>) {
        let labels = |member: &MemberKey| vec![("cluster", member.0.clone())];
        let healthy = || links.iter().filter_map(|(member, health)| Some((labels(member), health.as_ref()?)));
        self.connected.show(links.iter().map(|(member, health)| (labels(member), i64::from(health.is_some()))));
        self.since.show(healthy().map(|(labels, health)| (labels, health.since.as_second())));
        self.until.show(healthy().map(|(labels, health)| (labels, health.until.as_second())));
        let until = authority.and_then(|until| until.duration_since(UNIX_EPOCH).ok());
        self.authority.set(until.map_or(0, |until| i64::try_from(until.as_secs()).unwrap_or(i64::MAX)));
    }
}
