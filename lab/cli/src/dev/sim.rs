//! `drover dev sim`: simulated clusters served on loopback, for trying things out, the demo and tests.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use drover_kubesim::{ClusterSpec, Sim};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// `drover dev sim`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  drover dev sim --clusters 3 --nodes 5 --dir /tmp/sim\n  drover cluster add a --provider onprem --kubeconfig /tmp/sim/sim-1.kubeconfig"
)]
pub struct SimArgs {
    /// Number of clusters.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=5000))]
    pub clusters: u16,
    /// Nodes of each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=5000))]
    pub nodes: u16,
    /// CPUs of a node.
    #[arg(long, default_value_t = 4)]
    pub cpu: u32,
    /// Memory of a node, GiB.
    #[arg(long, default_value_t = 16)]
    pub memory: u32,
    /// Pods that a node takes.
    #[arg(long, default_value_t = 110)]
    pub node_pods: u32,
    /// Pods that run in each to begin with.
    #[arg(long, default_value_t = 0)]
    pub pods: usize,
    /// Folder for the kubeconfigs.
    #[arg(long, default_value = "sim", value_name = "DIR")]
    pub dir: PathBuf,
}

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// No port or no folder can be had.
pub async fn run(args: SimArgs) -> Result<ExitCode> {
    let told = |url: &str, files: &[PathBuf]| {
        eprintln!("{} simulated clusters at {url}; Ctrl-C ends them", files.len());
        for file in files {
            println!("{}", file.display());
        }
    };
    let mut spec = ClusterSpec::with_nodes(args.nodes.into(), &args.cpu.to_string(), &format!("{}Gi", args.memory));
    spec.nodes.iter_mut().for_each(|node| node.pods = args.node_pods);
    spec.pods = args.pods;
    drover_kubesim::dev::run(args.clusters.into(), &spec, &args.dir, told, drover_service::signalled()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Simulated clusters that are being served; dropping it ends them.
pub struct Simulated {
    /// Their controls.
    pub sim: Sim,
    /// A kubeconfig each.
    pub kubeconfigs: Vec<Vec<u8>>,
    server: JoinHandle<()>,
}

impl Simulated {
    /// Starts clusters of these names with `nodes` nodes of `cpu` and `memory` each.
    ///
    /// # Errors
    /// No port can be had.
    pub async fn start(names: &[&str], nodes: usize, cpu: &str, memory: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let sim = Sim::new();
        for name in names {
            sim.add_cluster(name, ClusterSpec::with_nodes(nodes, cpu, memory));
        }
        let kubeconfigs = names.iter().map(|name| sim.kubeconfig(name, &url).into_bytes()).collect();
        Ok(Self { server: sim.serve(listener), sim, kubeconfigs })
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.server.abort();
    }
}
