//! Settings that only resource-synchronizer has.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use secrecy::SecretString;

/// The settings of resource-synchronizer besides those of every service.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_RESOURCE_SYNCHRONIZER_LISTEN", default_value = "127.0.0.1:9023")]
    pub listen: SocketAddr,
    /// Key that seals the objects of applications in the database; without it the key file is used
    #[arg(long, env = "DROVER_SEAL_KEY", hide_env_values = true)]
    pub seal_key: Option<SecretString>,
    /// File with the key; created with a new key if it does not exist
    #[arg(long, env = "DROVER_SEAL_KEY_FILE", default_value = "drover-seal.key")]
    pub seal_key_file: PathBuf,
}
