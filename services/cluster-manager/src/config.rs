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
}

impl Default for Config {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 0)), seal: SealSettings::default(), heartbeat_ms: 5_000, metrics_ms: 10_000 }
    }
}

impl Config {
    pub(crate) fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms.max(50))
    }

    pub(crate) fn metrics(&self) -> Duration {
        Duration::from_millis(self.metrics_ms.max(50))
    }
}
