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
    /// Seconds that the search for a plan may take, 0.001 to 20, unless a request names its own limit
    #[arg(long, env = "DROVER_PLAN_SECONDS", default_value_t = 0.05)]
    pub plan_seconds: f64,
    /// Days after which plans are deleted, except those that are being carried out
    #[arg(long, env = "DROVER_KEEP_PLANS_DAYS", default_value_t = 30)]
    pub keep_plans_days: u16,
}
