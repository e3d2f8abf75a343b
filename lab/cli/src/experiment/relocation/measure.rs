//! Carries out an experiment on the clusters that were asked for, and compares what was deployed with the run in memory.

use std::process::ExitCode;

use anyhow::{Context, Error, Result, anyhow};
use drover_lab_relocation::experiment::{Plan, Runner};
use drover_lab_relocation::{Draw, NodeSize, Preference, Replay, Strategy, replay};
use drover_report::{Check, Report};
use tokio::sync::{mpsc, oneshot};

use super::fleet::ClusterFleet;
use super::{Common, DrawArgs, Members, with_bar};
use crate::bench::{cleanup, machine};

/// Smallest share of deployed draws that run the same applications as in memory. It is not all of them: the planner breaks ties by how long
/// pods took to start.
const ALIKE: f64 = 0.9;

/// An experiment on draws.
pub type Experiment<C> = fn(&Plan, &mut Runner<'_, Error>, &dyn Fn()) -> Result<Vec<C>>;

/// Where the draws ran.
pub struct Ran {
    members: Members,
    /// The machine before the run, and the number of draws.
    conditions: String,
    /// Draws under a strategy that were deployed, and how many of them ran the same applications as in memory.
    deployed: usize,
    alike: usize,
}

impl Ran {
    /// Adds what the figures depend on, and whether deployed draws ended as in memory.
    pub fn tell(&self, report: &mut Report) {
        report.under(&self.conditions);
        let what = match self.members {
            Members::Memory => return,
            Members::Sim => "simulated clusters",
            Members::Local => "real control planes",
        };
        report.finding(format!(
            "deployed on {what}: {} draws under a strategy of the product; {} of them ended with the same applications running as in memory",
            self.deployed, self.alike
        ));
        let share = self.alike as f64 / self.deployed as f64;
        report.checks.push(Check::at_least("deployed draws that run the same applications as in memory", ALIKE, share, "of all"));
    }
}

/// A draw that is to be deployed, and where to send what became of it.
struct Order {
    draw: Draw,
    size: NodeSize,
    preference: Preference,
    strategy: Strategy,
    done: oneshot::Sender<Result<Replay>>,
}

/// Runs an experiment, and hands its data over. Leaves no process and no directory behind, even when it is interrupted.
///
/// # Errors
/// An option is out of range, a part cannot be started, or a request fails.
pub fn measure<C: Send + 'static>(
    draws: &DrawArgs,
    common: &Common,
    experiment: Experiment<C>,
    deliver: impl FnOnce(&Plan, &[C], &Ran) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let plan = draws.plan(common)?;
    let conditions = format!("{}; {} draws", machine::line()?, plan.draws);
    let mut ran = Ran { members: draws.members, conditions, deployed: 0, alike: 0 };
    if draws.members == Members::Memory {
        let mut run = |draw: &Draw, size, preference, strategy: &Strategy| Ok(replay(draw, size, preference, strategy));
        let cases = with_bar(&plan, |plan, done| experiment(plan, &mut run, done))??;
        return deliver(&plan, &cases, &ran);
    }
    cleanup::run(async move {
        let (cases, [deployed, alike]) = on_clusters(draws.members == Members::Local, plan.clone(), experiment).await?;
        (ran.deployed, ran.alike) = (deployed, alike);
        deliver(&plan, &cases, &ran)
    })
}

/// The experiment runs on a thread of its own and sends what is to be deployed; when this future is dropped, it ends with an error.
async fn on_clusters<C: Send + 'static>(real: bool, plan: Plan, experiment: Experiment<C>) -> Result<(Vec<C>, [usize; 2])> {
    let (send, mut orders) = mpsc::channel::<Order>(1);
    let experiment = tokio::task::spawn_blocking(move || {
        let mut counts = [0, 0];
        let mut run = |draw: &Draw, size, preference, strategy: &Strategy| {
            let expected = replay(draw, size, preference, strategy);
            if !is_deployable(strategy) {
                return Ok(expected);
            }
            let (done, result) = oneshot::channel();
            let order = Order { draw: draw.clone(), size, preference, strategy: strategy.clone(), done };
            send.blocking_send(order).map_err(|_| anyhow!("the experiment was interrupted"))?;
            let result = result.blocking_recv().context("the experiment was interrupted")??;
            counts[0] += 1;
            counts[1] += usize::from(result.running() == expected.running());
            Ok(result)
        };
        let cases = with_bar(&plan, |plan, done| experiment(plan, &mut run, done))??;
        anyhow::Ok((cases, counts))
    });
    let mut fleet: Option<ClusterFleet> = None;
    while let Some(order) = orders.recv().await {
        if let Some(other) = fleet.take_if(|fleet| fleet.size() != order.size) {
            other.stop().await?;
        }
        let fleet = match &mut fleet {
            Some(fleet) => fleet,
            none => none.insert(ClusterFleet::start(real, order.size).await?),
        };
        let result = fleet.replay(&order.draw, order.preference, &order.strategy).await;
        // Whoever asked has ended.
        let _ = order.done.send(result);
    }
    if let Some(fleet) = fleet {
        fleet.stop().await?;
    }
    experiment.await?
}

/// Whether a strategy is the product's, with nothing that only the fleet in memory reports. Its policies rank by the CPU that pods use, which
/// nodes without containers do not have.
fn is_deployable(strategy: &Strategy) -> bool {
    match strategy {
        Strategy::Reject => true,
        Strategy::Drover { policy, .. } => policy.algorithms.is_empty(),
        Strategy::PaperText(_) | Strategy::Published(..) => false,
    }
}
