//! Settings that only migration has.

use std::net::SocketAddr;

use clap::Args;
use url::Url;

/// Settings of migration beside those of every service.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_MIGRATION_LISTEN", default_value = "127.0.0.1:9900")]
    pub listen: SocketAddr,
    /// Prometheus for parameters of source `prometheus`; without it they have no value
    #[arg(long = "prometheus-url", env = "DROVER_PROMETHEUS_URL")]
    pub prometheus: Option<Url>,
}
