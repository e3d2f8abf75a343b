//! Settings of migration alone.

use std::net::SocketAddr;

use clap::Args;
use url::Url;

/// What migration can be told beside what every service is told.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_MIGRATION_LISTEN", default_value = "127.0.0.1:9900")]
    pub listen: SocketAddr,
    /// Prometheus that parameters of source `prometheus` are asked of; without it they have no value
    #[arg(long = "prometheus-url", env = "DROVER_PROMETHEUS_URL")]
    pub prometheus: Option<Url>,
}
