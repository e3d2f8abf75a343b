//! Settings that only resource-synchronizer has.

use std::net::SocketAddr;

use clap::Args;
use drover_service::SealSettings;

/// The settings of resource-synchronizer besides those of every service.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_RESOURCE_SYNCHRONIZER_LISTEN", default_value = "127.0.0.1:9023")]
    pub listen: SocketAddr,
    /// Seal key
    #[command(flatten)]
    pub seal: SealSettings,
}
