//! A Drover with its members, each in a process of its own, and what they take.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::process::{self, Members, Program, Simulated};
use super::{machine, world};
use drover::client::Client;

/// The parts; dropping it ends them, Drover first.
pub struct Stack {
    /// REST through the gateway.
    pub client: Client,
    /// `drover up`.
    pub drover: Program,
    /// Simulated members, if they are.
    pub simulated: Option<Simulated>,
    folder: tempfile::TempDir,
}

/// CPU seconds so far.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// Drover's process.
    pub drover: f64,
    /// Its Postgres.
    pub postgres: f64,
    /// The simulated members.
    pub members: f64,
    at: Instant,
}

impl Cpu {
    /// What came since `before`; and how long that is.
    pub fn since(&self, before: &Self) -> (Self, Duration) {
        let took = self.at - before.at;
        let (drover, postgres) = (self.drover - before.drover, self.postgres - before.postgres);
        (Self { drover, postgres, members: self.members - before.members, at: self.at }, took)
    }
}

impl Stack {
    /// Simulated members, registered and known, in turn to so many providers.
    ///
    /// # Errors
    /// A part does not come up.
    pub async fn simulated(members: Members, providers: usize, labels: impl Fn(usize) -> Vec<String> + Copy) -> Result<Self> {
        let folder = folder()?;
        let simulated = process::simulate(members, &folder.path().join("sim"))?;
        let kubeconfigs = simulated.kubeconfigs.clone();
        Self::over(folder, Some(simulated), &kubeconfigs, members.nodes, providers, labels).await
    }

    /// Over members that are there.
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
        let (drover, url) = process::up(&folder.path().join("data"))?;
        let stack = Self { client: Client::new(url, None)?, drover, simulated, folder };
        world::register(&stack.client, kubeconfigs, providers, labels).await?;
        world::members_known(&stack.client, kubeconfigs.len(), nodes).await?;
        let keys: Vec<String> = (0..kubeconfigs.len()).map(|at| world::key(at, providers)).collect();
        world::project(&stack.client, &keys).await?;
        Ok(stack)
    }

    /// Ends Drover and starts it again on the same data; when the new process was started.
    ///
    /// # Errors
    /// It does not come up again.
    pub fn restart(&mut self) -> Result<Instant> {
        self.drover.stop();
        let began = Instant::now();
        let (drover, url) = process::up(&self.folder.path().join("data"))?;
        (self.drover, self.client) = (drover, Client::new(url, None)?);
        Ok(began)
    }

    /// CPU so far.
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

/// A folder for a stack.
///
/// # Errors
/// None can be made.
pub fn folder() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("drover-bench-").tempdir()?)
}
