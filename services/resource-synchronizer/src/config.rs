//! Settings of resource-synchronizer alone.

use std::net::SocketAddr;

use clap::Args;

/// What resource-synchronizer can be told beside what every service is told.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_RESOURCE_SYNCHRONIZER_LISTEN", default_value = "127.0.0.1:9023")]
    pub listen: SocketAddr,
}
