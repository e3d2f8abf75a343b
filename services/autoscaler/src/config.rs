//! Settings: one flag each, each also an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::path::{activator, demo, queue_proxy};

/// The autoscaler of a cluster: scales by threshold, KPA or Q-learning, and says why.
#[derive(Debug, Parser)]
#[command(name = "drover-autoscaler", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Roles.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Scale this cluster's workloads as their ScalingPolicies say.
    Agent(Box<Agent>),
    /// Stand before an app in its pod: count requests, let as many at once in as it takes.
    QueueProxy(queue_proxy::Config),
    /// Hold requests of apps that have no pod, or too few.
    Activator(activator::Config),
    /// A tiny app of a known capacity, to try scaling with.
    DemoApp(demo::app::Config),
    /// An open-loop load for it; prints what came of it as one JSON line.
    DemoLoad(demo::load::Config),
}

/// `agent`.
#[derive(Args, Clone, Debug)]
pub struct Agent {
    /// Kubeconfig of the cluster; absent: the service account of the pod that this is.
    #[arg(long, env = "AUTOSCALER_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Look at the policies and pods of one namespace only.
    #[arg(long, env = "AUTOSCALER_WATCH_NAMESPACE", value_name = "NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// Namespace of the Lease that says which of several agents acts.
    #[arg(long, env = "AUTOSCALER_LEASE_NAMESPACE", default_value = "kube-system", value_name = "NAMESPACE")]
    pub lease_namespace: String,
    /// Name of that Lease.
    #[arg(long, env = "AUTOSCALER_LEASE", default_value = "drover-autoscaler", value_name = "NAME")]
    pub lease: String,
    /// Seconds after which a silent leader may be succeeded. It stops acting at two thirds of it.
    #[arg(long, env = "AUTOSCALER_LEASE_SECONDS", default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(3..=300))]
    pub lease_seconds: u32,
    /// Serve /metrics, /healthz, /v1/statistics and /v1/decisions here.
    #[arg(long, env = "AUTOSCALER_LISTEN", default_value = "0.0.0.0:9465", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Where other agents of this cluster reach this one (they pass statistics on to whoever acts); absent: nowhere.
    #[arg(long, env = "AUTOSCALER_ADVERTISE", value_name = "ADDRESS")]
    pub advertise: Option<SocketAddr>,
    /// Service accounts that may push statistics of policies in all namespaces; others only of those in their own.
    #[arg(
        long,
        env = "AUTOSCALER_TRUST",
        default_value = "kube-system/drover-activator",
        value_name = "NAMESPACE/NAME",
        value_delimiter = ','
    )]
    pub trust: Vec<String>,
}
