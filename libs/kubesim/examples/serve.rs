//! Two simulated clusters for kubectl, without the rest of Drover: `cargo run -p drover-kubesim --example serve -- DIR`.

use std::path::PathBuf;

use drover_kubesim::ClusterSpec;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let dir = std::env::args().nth(1).map_or_else(|| PathBuf::from("sim"), PathBuf::from);
    let told = |url: &str, files: &[PathBuf]| println!("{url}: {files:?}");
    let shutdown = async { drop(tokio::signal::ctrl_c().await) };
    drover_kubesim::dev::run(2, &ClusterSpec::with_nodes(3, "4", "16Gi"), &dir, told, shutdown).await
}
