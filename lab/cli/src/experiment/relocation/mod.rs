//! `drover experiment occupancy` and `rejection`: the relocation paper's random applications on three clusters, in memory or deployed.

mod fleet;
mod measure;
pub mod occupancy;
pub mod rejection;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use drover_lab_relocation::experiment::Plan;
use drover_report::Interval;
use indicatif::{ProgressBar, ProgressStyle};

use super::Common;

/// The demands of the specification.
const DEMANDS: &str = "70,85,100,115";
/// The demand for which the paper's statements are checked: the one for which the specification sizes the clusters.
const CHECKED: u32 = 85;

/// Which draws are made.
#[derive(Debug, Args)]
pub struct DrawArgs {
    /// Number of draws, each with a seed of its own; the paper made 5.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=100_000))]
    pub draws: u64,
    /// Mean demand of the 15 applications in percent of what the clusters have; several with commas.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = DEMANDS, value_parser = clap::value_parser!(u32).range(10..=1_000))]
    pub demand: Vec<u32>,
    /// The clusters. In memory Drover's decisions and plans are called directly; otherwise all services run and every application is
    /// deployed through REST, which takes about 20 s for each draw and strategy.
    #[arg(long, value_enum, default_value_t = Members::Memory)]
    pub members: Members,
}

/// The clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Members {
    /// The ledger of one process, without services.
    Memory,
    /// Simulated API servers in one process.
    Sim,
    /// Real control planes on this machine, without real nodes.
    Local,
}

impl DrawArgs {
    fn plan(&self, common: &Common) -> Result<Plan> {
        let mut demands = self.demand.clone();
        demands.sort_unstable();
        demands.dedup();
        ensure!(common.seed.checked_add(self.draws).is_some(), "--seed is too large for {} draws", self.draws);
        Ok(Plan { seed: common.seed, draws: self.draws, demands })
    }
}

/// Makes all draws, and shows how many are done.
fn with_bar<R>(plan: &Plan, run: impl FnOnce(&Plan, &dyn Fn()) -> R) -> Result<R> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} draws, {elapsed} so far, {eta} left")?;
    let bar = ProgressBar::new(plan.runs()).with_style(style);
    let result = run(plan, &|| bar.inc(1));
    bar.finish_and_clear();
    Ok(result)
}

/// The mean of a measure over samples, with its 95 % interval.
fn interval<S>(samples: &[S], measure: impl Fn(&S) -> f64) -> Interval {
    Interval::of(&samples.iter().map(measure).collect::<Vec<_>>())
}

/// A share as a percentage with its interval.
fn percent(share: Interval) -> String {
    format!("{:.1} ± {:.1}", 100.0 * share.mean, 100.0 * share.half())
}

/// A number with its interval.
fn number(interval: Interval) -> String {
    format!("{:.2} ± {:.2}", interval.mean, interval.half())
}
