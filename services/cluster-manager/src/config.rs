//! Settings of cluster-manager alone.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use drover_service::SealSettings;

/// Settings of cluster-manager beside those that every service has.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_CLUSTER_MANAGER_LISTEN", default_value = "127.0.0.1:9061")]
    pub listen: SocketAddr,
    /// Seal key
    #[command(flatten)]
    pub seal: SealSettings,
    /// Milliseconds between two probes of a member
    #[arg(long, env = "DROVER_MEMBER_HEARTBEAT_MS", default_value_t = 5_000)]
    pub heartbeat_ms: u64,
    /// Milliseconds between two readings of metrics.k8s.io
    #[arg(long, env = "DROVER_MEMBER_METRICS_MS", default_value_t = 10_000)]
    pub metrics_ms: u64,
    /// Address on which agents of clusters that Drover cannot reach (drover-link) are taken; absent: none are
    #[arg(long, env = "DROVER_LINK_LISTEN", value_name = "ADDRESS")]
    pub link_listen: Option<SocketAddr>,
    /// Address under which agents reach it, HOST:PORT, for invitations [default: the one it listens on]
    #[arg(long, env = "DROVER_LINK_ADDRESS", value_name = "HOST:PORT", requires = "link_listen")]
    pub link_address: Option<String>,
    /// For how many seconds the certificate of an agent is valid; it is renewed after two thirds
    #[arg(long, env = "DROVER_LINK_CERTIFICATE_SECONDS", default_value_t = DAY, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(5..=2_592_000))]
    pub link_certificate_seconds: u64,
}

const DAY: u64 = 24 * 3600;

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            seal: SealSettings::default(),
            heartbeat_ms: 5_000,
            metrics_ms: 10_000,
            link_listen: None,
            link_address: None,
            link_certificate_seconds: DAY,
        }
    }
}

impl Config {
    pub(crate) fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms.max(50))
    }

    pub(crate) fn link_certificate(&self) -> Duration {
        Duration::from_secs(self.link_certificate_seconds)
    }

    pub(crate) fn metrics(&self) -> Duration {
        Duration::from_millis(self.metrics_ms.max(50))
    }
}
