//! The agent: watches policies, looks at workloads, lets libs/autoscaling decide, scales, and says why.

pub mod clock;
pub mod lease;
pub mod pods;
pub mod selector;

use anyhow::Result;

use crate::config::Agent;

/// Runs until it is told to stop.
///
/// # Errors
/// The settings are not usable.
pub async fn run(settings: Agent) -> Result<()> {
    anyhow::bail!("not there yet: {}", settings.lease)
}
