//! `drover autoscale train`: trains on the first part of a load and writes the Q-table.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use drover_autoscaling::qlearning::{QLearningSpec, QTable};
use drover_lab_autoscaling::sim::{Arrivals, Schedule, SimSpec, Trace, train};

use super::{LoadArgs, SimArgs};

/// `drover autoscale train`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover autoscale train --trace load.csv --passes 20 --table table.json
  kubectl create configmap shop-table --from-file=table.json")]
pub struct TrainArgs {
    /// Load.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Workload.
    #[command(flatten)]
    pub sim: SimArgs,
    /// Parameters of the learner.
    #[command(flatten)]
    pub learner: LearnerArgs,
    /// Number of passes over the training load.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub passes: u32,
    /// Length of the training load in seconds, from the start of the load.
    #[arg(long, value_name = "SECONDS", default_value_t = 5_000)]
    pub training: usize,
    /// File to write the Q-table to [default: stdout].
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
}

/// Parameters of the learner.
#[derive(Clone, Copy, Debug, Args)]
pub struct LearnerArgs {
    /// Learning rate.
    #[arg(long, default_value_t = 0.3)]
    pub alpha: f64,
    /// Discount factor of future rewards.
    #[arg(long, default_value_t = 0.5)]
    pub gamma: f64,
    /// Learn and act without safety rules, as the paper does.
    #[arg(long)]
    pub unguarded: bool,
}

impl LearnerArgs {
    /// The learner for a workload.
    ///
    /// # Errors
    /// A parameter is out of range.
    pub fn spec(self, sim: &SimSpec, seed: u64) -> Result<QLearningSpec> {
        let (alpha, gamma, guards) = (self.alpha, self.gamma, !self.unguarded);
        let spec = QLearningSpec { alpha, gamma, guards, penalty: sim.penalty, capacity: sim.capacity, seed, ..QLearningSpec::default() };
        spec.check()?;
        Ok(spec)
    }
}

/// A Q-table trained with `passes` passes over the first `training` seconds of a load.
pub fn trained(learner: &QLearningSpec, sim: &SimSpec, trace: &Trace, period: u16, training: usize, passes: u32) -> QTable {
    let pass = Arrivals::even(trace, sim, 0, training);
    train(learner, sim, &Schedule::default(), usize::from(period), (0..passes).map(|_| &pass))
}

/// Trains, and writes the Q-table to the file or to stdout.
///
/// # Errors
/// A parameter is out of range, the load cannot be read, or the file cannot be written.
pub fn run(args: &TrainArgs) -> Result<()> {
    let sim = args.sim.spec()?;
    anyhow::ensure!(sim.min_pods >= 1, "--min-pods must be 1 or more: Q-learning cannot scale up from zero");
    let learner = args.learner.spec(&sim, args.load.seed)?;
    let trace = args.load.load(&sim)?;
    let started = Instant::now();
    let table = trained(&learner, &sim, &trace, args.sim.period, args.training, args.passes);
    let seconds = args.training.min(trace.rates().len());
    eprintln!("{} passes over {seconds} s of load in {:.2} s", args.passes, started.elapsed().as_secs_f64());
    let text = serde_json::to_string_pretty(&table)?;
    match &args.table {
        Some(path) => std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display())),
        None => {
            println!("{text}");
            Ok(())
        }
    }
}
