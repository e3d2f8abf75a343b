//! Settings: each is a flag and an environment variable.

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;

use crate::drill::Drill;

/// The agent of a cluster that Drover cannot reach: connects to Drover and carries its connections to the cluster's API server.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "drover-link",
    version,
    after_help = "Examples:\n  drover-link --invitation edge.json --state /var/lib/drover-link --api-server 127.0.0.1:6443\n  \
                  drover-link --state /var/lib/drover-link\n\n`drover cluster invite` writes the invitation. Without --api-server it is the \
                  one that Kubernetes names to each pod."
)]
pub struct Config {
    /// The invitation. Needed at the first start, and again after the access was taken back or the certificate has expired
    #[arg(long, env = "DROVER_LINK_INVITATION", value_name = "FILE")]
    pub invitation: Option<PathBuf>,
    /// Directory for the agent's key and certificate, readable for it alone. Who has it is this agent
    #[arg(long, env = "DROVER_LINK_STATE", value_name = "DIR")]
    pub state: PathBuf,
    /// The cluster's API server, HOST:PORT: the only address to which Drover is connected
    #[arg(long, env = "DROVER_LINK_API_SERVER", value_name = "HOST:PORT")]
    pub api_server: Option<String>,
    /// Address of Drover, in place of the one in the invitation
    #[arg(long, env = "DROVER_LINK_HUB", value_name = "HOST:PORT")]
    pub hub: Option<String>,
    /// What a test does to the agent; nothing in a process
    #[arg(skip)]
    pub drill: Drill,
}

impl Config {
    /// The address of the API server.
    ///
    /// # Errors
    /// It is not given, and this is no pod.
    pub fn api_server(&self) -> anyhow::Result<String> {
        if let Some(given) = &self.api_server {
            return Ok(given.clone());
        }
        let of_pod = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = of_pod("KUBERNETES_SERVICE_HOST").context("this is no pod of a cluster: give --api-server HOST:PORT")?;
        let port = of_pod("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    }
}
