//! Settings of placement alone.

use std::net::SocketAddr;

use clap::Args;

/// Settings of placement beside those that every service has.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_PLACEMENT_LISTEN", default_value = "127.0.0.1:9031")]
    pub listen: SocketAddr,
}
