//! Settings of placement alone.

use std::net::SocketAddr;

use clap::Args;

/// What placement can be told beside what every service is told.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_PLACEMENT_LISTEN", default_value = "127.0.0.1:9031")]
    pub listen: SocketAddr,
}
