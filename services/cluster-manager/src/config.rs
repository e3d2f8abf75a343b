//! Settings of cluster-manager alone.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use drover_store::SealKey;
use secrecy::SecretString;

/// Settings of cluster-manager beside those that every service has.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_CLUSTER_MANAGER_LISTEN", default_value = "127.0.0.1:9061")]
    pub listen: SocketAddr,
    /// Key that seals kubeconfigs and kv-pairs; without it the key file is used
    #[arg(long, env = "DROVER_SEAL_KEY", hide_env_values = true)]
    pub seal_key: Option<SecretString>,
    /// File with the key; created with a new key if it does not exist
    #[arg(long, env = "DROVER_SEAL_KEY_FILE", default_value = "drover-seal.key")]
    pub seal_key_file: PathBuf,
    /// Milliseconds between two probes of a member
    #[arg(long, env = "DROVER_MEMBER_HEARTBEAT_MS", default_value_t = 5_000)]
    pub heartbeat_ms: u64,
    /// Milliseconds between two readings of metrics.k8s.io
    #[arg(long, env = "DROVER_MEMBER_METRICS_MS", default_value_t = 10_000)]
    pub metrics_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            seal_key: None,
            seal_key_file: PathBuf::from("drover-seal.key"),
            heartbeat_ms: 5_000,
            metrics_ms: 10_000,
        }
    }
}

impl Config {
    pub(crate) fn key(&self) -> anyhow::Result<SealKey> {
        Ok(SealKey::load(self.seal_key.as_ref(), &self.seal_key_file)?)
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms.max(50))
    }

    pub(crate) fn metrics(&self) -> Duration {
        Duration::from_millis(self.metrics_ms.max(50))
    }
}
