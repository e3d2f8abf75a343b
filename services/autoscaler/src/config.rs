//! Settings: each is a flag and an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::path::{activator, demo, queue_proxy};
use crate::webhook::Webhook;

/// The autoscaler of a cluster: scales by threshold, KPA or Q-learning, and records why.
#[derive(Debug, Parser)]
#[command(name = "drover-autoscaler", version)]
pub struct Cli {
    /// The role of this process.
    #[command(subcommand)]
    pub command: Command,
}

/// The roles of the process.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Scale this cluster's workloads as their ScalingPolicies say.
    Agent(Box<Agent>),
    /// Run in front of an app in its pod: count requests and limit how many run at the same time.
    QueueProxy(queue_proxy::Config),
    /// Hold requests of apps that have no pod, or too few.
    Activator(activator::Config),
    /// A small app of a known capacity, to try scaling with.
    DemoApp(demo::app::Config),
    /// Send an open-loop load to a URL and print the result as one JSON line.
    DemoLoad(demo::load::Config),
}

/// Settings of `agent`.
#[derive(Args, Clone, Debug)]
pub struct Agent {
    /// Kubeconfig of the cluster; absent: the service account of the agent's own pod.
    #[arg(long, env = "AUTOSCALER_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Only watch the policies and pods of this namespace.
    #[arg(long, env = "AUTOSCALER_WATCH_NAMESPACE", value_name = "NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// Namespace of the Lease that elects which of several agents acts.
    #[arg(long, env = "AUTOSCALER_LEASE_NAMESPACE", default_value = "kube-system", value_name = "NAMESPACE")]
    pub lease_namespace: String,
    /// Name of that Lease.
    #[arg(long, env = "AUTOSCALER_LEASE", default_value = "drover-autoscaler", value_name = "NAME")]
    pub lease: String,
    /// Seconds without renewal after which another agent may take the Lease. The holder stops acting after two thirds of it.
    #[arg(long, env = "AUTOSCALER_LEASE_SECONDS", default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(3..=300))]
    pub lease_seconds: u32,
    /// Address to serve /metrics, /healthz, /v1/statistics and /v1/decisions on.
    #[arg(long, env = "AUTOSCALER_LISTEN", default_value = "0.0.0.0:9465", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Address at which other agents of this cluster reach this one to pass statistics on to the acting agent; absent: none.
    #[arg(long, env = "AUTOSCALER_ADVERTISE", value_name = "ADDRESS")]
    pub advertise: Option<SocketAddr>,
    /// Service accounts that may push statistics of policies in all namespaces; all others only those of their own namespace.
    #[arg(
        long,
        env = "AUTOSCALER_TRUST",
        default_value = "kube-system/drover-activator",
        value_name = "NAMESPACE/NAME",
        value_delimiter = ','
    )]
    pub trust: Vec<String>,
    /// Scale to zero by annotation.
    #[command(flatten)]
    pub webhook: Webhook,
}
