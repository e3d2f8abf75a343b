//! One workflow under one policy: the paper's 4 GB jobs at 140 %, scaled by 1/32 in memory and some twenty times as fast.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::pods::{self, Pods};
use super::{Containerd, Outcome, Spec, Start, Version, workflow};
use drover_memory_guard::wire::Totals;

const MIB: u64 = 1 << 20;
/// The node: 1 GiB.
const NODE: u64 = 1024 * MIB;
/// The most memory of a job, in MiB.
const LIMIT: u64 = 128;
/// How many jobs run at once: 140 % of the node's memory.
const SLOTS: usize = 11;
/// How many jobs a workflow has.
pub const JOBS: usize = 17;
/// CPU quota of a job in microseconds: a 25th of a core, so that all policies can run at once, and 16 MiB take 0.4 s as they take 8 s in the
/// simulator. In slices of a millisecond; with longer ones, each job would grow in leaps.
const QUOTA: i64 = 1_000;
const PERIOD: i64 = 25_000;
/// Time limit against hanging; a trial takes two to four minutes.
const PATIENCE: Duration = Duration::from_secs(1800);
/// What the guard's log says when its dead man's switch has released a container.
pub const SWITCH: &str = "released by the dead man's switch";
/// The compared policies; `none` is without a guard.
pub const POLICIES: [&str; 4] = ["none", "paper", "bank", "gate-bank"];

/// The result of one trial.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// One of [`POLICIES`].
    pub policy: &'static str,
    /// Seed of the jobs' sizes.
    pub seed: u64,
    /// Restarts and time.
    pub outcome: Outcome,
    /// What the guard did; `None` without a guard.
    pub totals: Option<Totals>,
    /// Whether the dead man's switch released anything, because the machine did not let the guard run for a while.
    pub switched: bool,
}

/// Runs jobs of `cycles` cycles under a policy, on a node of their own, with `program` as the guard.
///
/// # Errors
/// When the machine lacks something ([`super::lacking`]), the policy is none of [`POLICIES`], or the workflow does not end in time.
pub async fn trial(program: &Path, policy: &'static str, seed: u64, cycles: u32) -> Result<Trial> {
    let settings = settings(policy)?;
    let containerd = Containerd::start(NODE, Version::Debian).await?;
    let mut jobs = jobs(seed, cycles);
    let Some(settings) = settings else {
        let outcome = workflow(&containerd, &jobs, SLOTS, PATIENCE).await?;
        return Ok(Trial { policy, seed, outcome, totals: None, switched: false });
    };
    let state = containerd.dir.path().join("agent");
    let pods = Pods::start(containerd.dir.path(), &mut jobs).await?;
    let cluster = ["--kubeconfig", pods.kubeconfig.to_str().context("the directory's name is no text")?, "--node", pods::NODE];
    let start = Start::new(program, &state, &containerd.socket).settings(settings).args(cluster);
    let agent = start.args(["--mode", "apply", "--poll", "100ms", "--sacrifice-by-runtime", "--cgroup", &containerd.node]).start()?;
    agent.status_when("it may act", |status| status.hindered.is_none()).await?;
    let outcome = workflow(&containerd, &jobs, SLOTS, PATIENCE).await.with_context(|| agent.log())?;
    let totals = agent.status_when("nothing is held any more", |status| status.pressure.held == 0).await?.totals;
    let switched = agent.log().contains(SWITCH);
    agent.stop().await?;
    Ok(Trial { policy, seed, outcome, totals: Some(totals), switched })
}

fn jobs(seed: u64, cycles: u32) -> Vec<Spec> {
    let job = |number: usize| {
        let seed = (seed * 1000 + number as u64).to_string();
        let cycles = cycles.to_string();
        let args = ["job", "128", "64", "16", &cycles, "15", "4", "300", &seed];
        // A little more than the job uses: only the node runs out of memory, never the container.
        Spec { memory: ((LIMIT + 4) * MIB) as i64, quota: QUOTA, period: PERIOD, ..Spec::new(&format!("job-{number}"), &args) }
    };
    (0..JOBS).map(job).collect()
}

/// The settings of a policy at this scale; `None` for no guard.
fn settings(policy: &str) -> Result<Option<Value>> {
    Ok(Some(match policy {
        "none" => return Ok(None),
        "paper" => json!({
            // A job grows from its base to its limit in two seconds, so it must be held early.
            "policy": {"policy": "paper", "upper": 0.88, "lower": 0.86, "perRound": 4, "round": 0.3},
            "safety": {"levers": ["quota"], "highFirst": false, "sacrifices": {"allow": "governed", "every": 5.0, "perHour": 100}},
        }),
        "bank" => json!({"policy": {"policy": "bank", "margin": 0.04, "reaction": 0.5, "still": 1.0}, "safety": {"cooldown": 0}}),
        "gate-bank" => json!({
            "policy": {"policy": "gate-bank", "gate": {"settle": 1.0, "halfLife": 60.0, "priorWeight": 10.0},
                       "bank": {"margin": 0.04, "reaction": 0.5, "still": 1.0}},
            "safety": {"cooldown": 0},
        }),
        other => bail!("{other} is none of {POLICIES:?}"),
    }))
}
