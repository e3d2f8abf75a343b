//! The three members of the demo: simulated, or real control planes of deploy/local-kube.

use std::path::Path;

use anyhow::{Context, Result};

use super::Members;
use crate::dev::kube;
use crate::dev::sim::Simulated;

/// A member to be registered.
pub struct Member {
    /// Cluster name.
    pub name: String,
    pub provider: String,
    /// The provider's priority.
    pub priority: u8,
    pub kubeconfig: Vec<u8>,
    /// Image that its nodes can run.
    pub image: String,
    /// Command with which its containers answer HTTP on port 8080; empty: they do so by themselves.
    pub command: &'static [&'static str],
    /// Description of the kind of member.
    pub what: &'static str,
}

const NAMES: [(&str, &str, u8); 3] = [("private-a", "onprem", 1), ("private-b", "onprem", 1), ("public-c", "aws", 5)];
const CPU: &str = "4";
const MEMORY: &str = "8Gi";

/// The running members; dropping it ends simulated ones.
pub struct Started {
    /// The members.
    pub members: Vec<Member>,
    _simulated: Option<Simulated>,
}

/// Starts the members. `data` is the directory of the demo.
///
/// # Errors
/// Control planes cannot be started, or no port is free.
pub async fn start(kind: Members, data: &Path) -> Result<Started> {
    let mut simulated = None;
    let kubeconfigs = match kind {
        Members::Sim => {
            let clusters = Simulated::answering(&NAMES.map(|(name, ..)| name), 1, CPU, MEMORY).await?;
            simulated.insert(clusters).kubeconfigs.clone()
        }
        Members::Local | Members::Real => {
            let options = kube::Up {
                clusters: 3,
                names: NAMES.map(|(name, ..)| name.to_owned()).into(),
                nodes: 1,
                cpu: Some(CPU.into()),
                memory: Some(MEMORY.into()),
                metrics: true,
                real: kind == Members::Real,
                images: Vec::new(),
                owner: Some(std::process::id()),
                set: set(data),
            };
            let clusters = kube::up(&options).await.context("the members cannot start")?;
            clusters.iter().map(|c| std::fs::read(&c.kubeconfig)).collect::<Result<_, _>>()?
        }
    };
    let image = if kind == Members::Real { "drover.local/busybox:1" } else { "registry.example/app:1" };
    let command: &[&str] = if kind == Members::Real { &["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/etc"] } else { &[] };
    let what = match kind {
        Members::Sim => "simulated clusters (kubesim); MEMBERS=local uses real Kubernetes API servers",
        Members::Local => "three real Kubernetes control planes, simulated nodes",
        Members::Real => "three real Kubernetes control planes with real kubelets and containers",
    };
    let member = |((name, provider, priority), kubeconfig): ((&str, &str, u8), Vec<u8>)| Member {
        name: name.into(),
        provider: provider.into(),
        priority,
        kubeconfig,
        image: image.into(),
        command,
        what,
    };
    Ok(Started { members: NAMES.into_iter().zip(kubeconfigs).map(member).collect(), _simulated: simulated })
}

/// Stops real control planes, which would outlive this process.
pub async fn clean(kind: Members, data: &Path) {
    if kind != Members::Sim
        && let Err(error) = kube::down(&kube::Down { set: set(data), ..kube::Down::default() }).await
    {
        eprintln!("the members could not be stopped: {error:#}");
    }
}

fn set(data: &Path) -> kube::Set {
    kube::Set { dir: Some(data.join("kube")) }
}
