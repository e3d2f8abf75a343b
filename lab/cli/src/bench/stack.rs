//! `drover up` with its members, in processes of their own, and their use of CPU.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::planes::Planes;
use super::process::{self, Members, Program, Simulated};
use super::{machine, world};
use drover::hub::Client;

/// The running processes; dropping it ends them, Drover first.
pub struct Stack {
    /// REST client of the gateway.
    pub client: Client,
    /// `drover up`.
    pub drover: Program,
    /// The simulated members; `None` if the members are real.
    pub simulated: Option<Simulated>,
    folder: tempfile::TempDir,
}

/// CPU seconds so far.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// `drover up`.
    pub drover: f64,
    /// The Postgres of `drover up`.
    pub postgres: f64,
    /// The simulated members.
    pub members: f64,
    at: Instant,
}

impl Cpu {
    /// CPU used since `before`, and the time that passed.
    pub fn since(&self, before: &Self) -> (Self, Duration) {
        let took = self.at - before.at;
        let (drover, postgres) = (self.drover - before.drover, self.postgres - before.postgres);
        (Self { drover, postgres, members: self.members - before.members, at: self.at }, took)
    }
}

impl Stack {
    /// Starts simulated members and Drover, and registers the members, distributed over `providers` providers.
    ///
    /// # Errors
    /// A part does not start.
    pub async fn simulated(members: Members, providers: usize, labels: impl Fn(usize) -> Vec<String> + Copy) -> Result<Self> {
        let folder = folder()?;
        let simulated = process::simulate(members, &folder.path().join("sim")).await?;
        let kubeconfigs = simulated.kubeconfigs.clone();
        Self::over(folder, Some(simulated), &kubeconfigs, members.nodes, providers, labels).await
    }

    /// As [`Stack::simulated`], with members that run already.
    ///
    /// # Errors
    /// As [`Stack::simulated`].
    pub async fn over(
        folder: tempfile::TempDir,
        simulated: Option<Simulated>,
        kubeconfigs: &[PathBuf],
        nodes: usize,
        providers: usize,
        labels: impl Fn(usize) -> Vec<String> + Copy,
    ) -> Result<Self> {
        let (drover, client) = process::up(&folder.path().join("data")).await?;
        let stack = Self { client, drover, simulated, folder };
        world::register(&stack.client, kubeconfigs, providers, labels).await?;
        world::members_known(&stack.client, kubeconfigs.len(), nodes).await?;
        let keys: Vec<String> = (0..kubeconfigs.len()).map(|at| world::key(at, providers)).collect();
        world::project(&stack.client, &keys).await?;
        Ok(stack)
    }

    /// Stops Drover and starts it again on the same data; returns the time of the start.
    ///
    /// # Errors
    /// It does not start again.
    pub async fn restart(&mut self) -> Result<Instant> {
        self.drover.stop();
        let began = Instant::now();
        (self.drover, self.client) = process::up(&self.folder.path().join("data")).await?;
        Ok(began)
    }

    /// Ends everything: Drover before its members, which it would report to be unreachable.
    ///
    /// # Errors
    /// The control planes do not stop.
    pub async fn stop(mut self, members: Planes) -> Result<()> {
        self.drover.stop();
        members.stop().await
    }

    /// CPU used so far.
    ///
    /// # Errors
    /// A process has ended.
    pub fn cpu(&self) -> Result<Cpu> {
        let members = self.simulated.as_ref().map(|simulated| simulated.program.usage()).transpose()?;
        Ok(Cpu {
            drover: self.drover.usage()?.cpu,
            postgres: machine::postgres_cpu(self.drover.pid()),
            members: members.map_or(0.0, |usage| usage.cpu),
            at: Instant::now(),
        })
    }
}

/// A temporary directory for a stack.
///
/// # Errors
/// The directory cannot be created.
pub fn folder() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("drover-bench-").tempdir()?)
}
