//! The program of a pod on a real kubelet that answers as simulated pods do (libs/kubesim/src/standin.rs).

use anyhow::{Context, Result};

/// Answers on this port until it is killed.
#[tokio::main]
async fn main() -> Result<()> {
    let port: u16 = std::env::args().nth(1).context("usage: drover-stand-in PORT")?.parse()?;
    let listener = tokio::net::TcpListener::bind(("0.0.0.0", port)).await?;
    let name = std::env::var("HOSTNAME").unwrap_or_default();
    drover_kubesim::stand_in(listener, name).await;
    Ok(())
}
