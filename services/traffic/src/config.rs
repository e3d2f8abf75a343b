//! Settings of the data path, as flags and environment variables.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;

/// Flags and environment of the data path.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address for other services and for health checks; users' requests never come here
    #[arg(long, env = "DROVER_TRAFFIC_LISTEN", default_value = "127.0.0.1:9070")]
    pub listen: SocketAddr,
    /// IP address on which the ports of routes are opened; 0.0.0.0 or :: for all of this machine
    #[arg(long, env = "DROVER_TRAFFIC_ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "IP")]
    pub address: IpAddr,
    /// Directory for the last table, from which a process starts when no other service answers, and for handing sockets over
    #[arg(long, env = "DROVER_TRAFFIC_DIR", default_value = "/var/lib/drover/traffic", value_name = "DIR")]
    pub dir: PathBuf,
    /// Directory with a certificate chain HOST.crt and a key HOST.key (PEM) for each host name of an https route (`*.example.org.crt`
    /// for all names of one level); files that change are read again
    #[arg(long, env = "DROVER_TRAFFIC_TLS_DIR", value_name = "DIR")]
    pub tls_dir: Option<PathBuf>,
    /// Let several processes, each with a directory of its own, open the same ports; the kernel shares connections among them
    #[arg(long, env = "DROVER_TRAFFIC_REUSE_PORT")]
    pub reuse_port: bool,
    /// Connections of clients that may be open at the ports of all routes together; more are closed, those of http with an answer 503
    #[arg(long, env = "DROVER_TRAFFIC_MAX_CONNECTIONS", default_value_t = 16_384, value_name = "COUNT")]
    pub max_route_connections: usize,
    /// The same for one address (of IPv6: one /64 network); by default without a limit, because a load balancer in front is one address
    #[arg(long, env = "DROVER_TRAFFIC_MAX_CONNECTIONS_PER_ADDRESS", value_name = "COUNT")]
    pub max_route_connections_per_address: Option<usize>,
    /// Seconds for which connections may go on after another process has taken over the ports
    #[arg(long, env = "DROVER_TRAFFIC_DRAIN_SECONDS", default_value_t = 300, value_name = "SECONDS")]
    pub drain_seconds: u64,
}
