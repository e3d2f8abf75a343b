//! `drover dev sim`: simulated clusters served on loopback, for trials, the demo and benchmarks.

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
    /// Number of nodes of each cluster.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=5000))]
    pub nodes: u16,
    /// CPU of each node, for example 4 or 1500m.
    #[arg(long, default_value = "4", value_parser = quantity)]
    pub cpu: String,
    /// Memory of each node, for example 512Mi; a plain number is in GiB.
    #[arg(long, default_value = "16Gi", value_parser = memory)]
    pub memory: String,
    /// Maximum number of pods on each node.
    #[arg(long, default_value_t = 110)]
    pub node_pods: u32,
    /// Number of pods that run in each cluster at the start.
    #[arg(long, default_value_t = 0)]
    pub pods: usize,
    /// Let pods answer HTTP on the ports of their containers, each at an address of its own on loopback, so that routes lead to them.
    #[arg(long)]
    pub answer: bool,
    /// Directory for the kubeconfigs.
    #[arg(long, default_value = "sim", value_name = "DIR")]
    pub dir: PathBuf,
}

fn quantity(text: &str) -> Result<String, String> {
    drover_quantity::milli(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn memory(text: &str) -> Result<String, String> {
    if text.parse::<u32>().is_ok() { Ok(format!("{text}Gi")) } else { quantity(text) }
}

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// No port is free, or the directory cannot be created.
pub async fn run(args: SimArgs) -> Result<ExitCode> {
    let told = |url: &str, files: &[PathBuf]| {
        eprintln!("{} simulated clusters at {url}; Ctrl-C ends them", files.len());
        for file in files {
            println!("{}", file.display());
        }
    };
    let mut spec = ClusterSpec::with_nodes(args.nodes.into(), &args.cpu, &args.memory);
    spec.nodes.iter_mut().for_each(|node| node.pods = args.node_pods);
    spec.pods = args.pods;
    spec.stand_ins = args.answer;
    drover_kubesim::dev::run(args.clusters.into(), &spec, &args.dir, told, drover_service::signalled()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Simulated clusters that are served by this process; dropping it ends them.
pub struct Simulated {
    /// Handle to control them.
    pub sim: Sim,
    /// A kubeconfig for each cluster.
    pub kubeconfigs: Vec<Vec<u8>>,
    server: JoinHandle<()>,
}

impl Simulated {
    /// Starts clusters of these names with `nodes` nodes of `cpu` and `memory` each.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(names: &[&str], nodes: usize, cpu: &str, memory: &str) -> Result<Self> {
        Self::of(names, &ClusterSpec::with_nodes(nodes, cpu, memory)).await
    }

    /// The same with pods that answer on the ports of their containers.
    ///
    /// # Errors
    /// No port is free.
    pub async fn answering(names: &[&str], nodes: usize, cpu: &str, memory: &str) -> Result<Self> {
        Self::of(names, &ClusterSpec { stand_ins: true, ..ClusterSpec::with_nodes(nodes, cpu, memory) }).await
    }

    async fn of(names: &[&str], spec: &ClusterSpec) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let sim = Sim::new();
        for name in names {
            sim.add_cluster(name, spec.clone());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_number_of_memory_is_in_gib() {
        assert_eq!(memory("16").as_deref(), Ok("16Gi"));
        assert_eq!(memory("13552Mi").as_deref(), Ok("13552Mi"));
        assert!(memory("much").is_err() && quantity("4 CPUs").is_err());
        assert_eq!(quantity("7058m").as_deref(), Ok("7058m"));
    }
}
