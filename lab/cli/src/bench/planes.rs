//! The members of a stack: simulated, or real control planes on this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::process::{self, Members, Simulated};
use crate::dev::kube as local;

/// Running members.
pub struct Planes {
    /// The simulated ones, to be handed to the stack; `None` if they are real.
    pub simulated: Option<Simulated>,
    /// Kubeconfigs, ordered by the number of the member.
    pub kubeconfigs: Vec<PathBuf>,
    set: Option<local::Set>,
}

impl Planes {
    /// Starts members with their files in `folder`. Real ones have no pods at first, and end with this process at the latest.
    ///
    /// # Errors
    /// They do not start.
    pub async fn start(real: bool, members: Members, folder: &Path) -> Result<Self> {
        if !real {
            let simulated = process::simulate(members, &folder.join("sim")).await?;
            return Ok(Self { kubeconfigs: simulated.kubeconfigs.clone(), simulated: Some(simulated), set: None });
        }
        let set = local::Set { dir: Some(folder.join("kube")) };
        let up = local::Up {
            clusters: u16::try_from(members.count)?,
            names: Vec::new(),
            nodes: u16::try_from(members.nodes)?,
            cpu: Some(format!("{}m", members.millicores)),
            memory: Some(format!("{}Mi", members.mebibytes)),
            metrics: false,
            real: false,
            images: Vec::new(),
            owner: Some(std::process::id()),
            set: set.clone(),
        };
        let clusters = local::up(&up).await.context("the control planes")?;
        let kubeconfigs = clusters.into_iter().map(|cluster| cluster.kubeconfig).collect();
        Ok(Self { simulated: None, kubeconfigs, set: Some(set) })
    }

    /// Process ids of the programs of real ones; none if the members are simulated.
    ///
    /// # Errors
    /// The files in which deploy/local-kube keeps them (`pid/NAME` of each member: the id, and when it started) cannot be read.
    pub fn programs(&self) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        for member in self.kubeconfigs.iter().filter(|_| self.set.is_some()).filter_map(|file| file.parent()) {
            for entry in std::fs::read_dir(member.join("pid"))? {
                let text = std::fs::read_to_string(entry?.path())?;
                pids.push(text.split_whitespace().next().unwrap_or_default().parse().context("not a process id")?);
            }
        }
        Ok(pids)
    }

    /// Stops real ones; simulated ones end with their stack.
    ///
    /// # Errors
    /// They do not stop.
    pub async fn stop(self) -> Result<()> {
        match self.set {
            Some(set) => local::down(&local::Down { set, ..local::Down::default() }).await,
            None => Ok(()),
        }
    }
}
