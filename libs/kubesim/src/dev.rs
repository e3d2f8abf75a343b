//! Simulated clusters for `drover dev sim`.

use std::future::Future;
use std::path::{Path, PathBuf};

use tokio::net::TcpListener;

use crate::{ClusterSpec, Sim};

/// Serves `clusters` clusters like `spec` on a loopback port, without asking for tokens, writes `sim-<n>.kubeconfig` files into
/// `out`, and returns when `shutdown` does. `ready` is called with the address and the files.
///
/// # Errors
/// When no port is free or the folder cannot be written.
pub async fn run(
    clusters: usize,
    spec: &ClusterSpec,
    out: &Path,
    ready: impl FnOnce(&str, &[PathBuf]),
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let sim = Sim::new();
    std::fs::create_dir_all(out)?;
    let mut files = Vec::new();
    for at in 1..=clusters {
        let name = format!("sim-{at}");
        sim.add_cluster(&name, ClusterSpec { anonymous: true, journal: false, ..spec.clone() });
        let file = out.join(format!("{name}.kubeconfig"));
        std::fs::write(&file, sim.kubeconfig(&name, &url))?;
        files.push(file);
    }
    let server = sim.serve(listener);
    ready(&url, &files);
    shutdown.await;
    server.abort();
    Ok(())
}
