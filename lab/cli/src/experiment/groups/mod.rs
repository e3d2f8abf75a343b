//! `drover experiment groups`: compares every placement policy with the optimum, and evaluates CGS-DDPG as its paper does.

mod learned;
mod learning;
mod search;
mod starts;
mod teachers;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use drover_lab_groups::experiment::{BenchmarkCase, BestKnown, MeasuredPlacement};
use drover_report::{Report, Table};
use indicatif::ProgressBar;
use nix::time::{ClockId, clock_gettime};

use super::{Common, finish};
use crate::bench::machine;
use drover::globals::Format;

/// `drover experiment groups`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  drover experiment groups --no-training --no-large\n  drover experiment groups --seeds 2 --out groups/\n  \
                  drover experiment groups --only-learned --no-large --seeds 1 --save-learned model.json\n  \
                  drover experiment groups --only-learned --no-large --seeds 1 --graph shop.json --save-learned model.json\n  \
                  drover experiment groups --only-learned --teachers"
)]
pub struct GroupsArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: Common,
    /// Number of seeds of the learned policies.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: u64,
    /// Number of updates of each training; the paper's curve is stable after about 4,200.
    #[arg(long, default_value_t = 6_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub updates: u64,
    /// Run only the search and the baselines, without training.
    #[arg(long)]
    pub no_training: bool,
    /// Leave out the instances with 100 and 1,000 nodes.
    #[arg(long)]
    pub no_large: bool,
    /// File to which the trained policy of the first seed is written.
    #[arg(long, value_name = "FILE")]
    pub save_policy: Option<std::path::PathBuf>,
    /// File to which the model of the policy `learned` of the first seed is written.
    #[arg(long, value_name = "FILE")]
    pub save_learned: Option<std::path::PathBuf>,
    /// File of a call graph from `drover groups place --save-graph`, several times for several: `learned` is trained on them instead of
    /// Bookinfo and Online Boutique.
    #[arg(long, value_name = "FILE")]
    pub graph: Vec<std::path::PathBuf>,
    /// Only the policy `learned`: leaves out the search, the baselines and the paper's form.
    #[arg(long)]
    pub only_learned: bool,
    /// Also train by every teacher, and compare what they have taught. Takes four times as long.
    #[arg(long, conflicts_with_all = ["no_training", "graph"])]
    pub teachers: bool,
}

/// CPU time of this thread in seconds, so that other programs on the machine do not count.
pub fn cpu() -> f64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(0.0, |t| Duration::from(t).as_secs_f64())
}

/// Results collected so far.
struct Collected {
    report: Report,
    rows: Vec<MeasuredPlacement>,
    /// The best value known for each case, now.
    best: Vec<(String, BestKnown)>,
    bar: ProgressBar,
}

impl Collected {
    fn say(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
        self.bar.tick();
    }

    /// Keeps a row; a new best value replaces the old.
    fn add(&mut self, case: &BenchmarkCase, row: MeasuredPlacement) {
        if let (Some(known), true) = (case.best, row.unplaced == 0) {
            let now = self.best.iter_mut().find(|(name, _)| name == case.name);
            match now {
                Some((_, best)) if row.value < best.value - 5e-6 => *best = BestKnown { value: row.value, proven: false },
                Some(_) => {}
                None => self.best.push((case.name.to_owned(), BestKnown { value: known.value.min(row.value), ..known })),
            }
        }
        self.rows.push(row);
    }

    fn gap(&self, row: &MeasuredPlacement) -> String {
        match self.best.iter().find(|(name, _)| *name == row.case) {
            Some((_, best)) if row.unplaced == 0 => format!("{:.1}", 100.0 * (row.value / best.value - 1.0).max(0.0)),
            _ => "-".to_owned(),
        }
    }
}

/// Runs the experiment.
///
/// # Errors
/// A file cannot be written.
pub fn run(args: &GroupsArgs, format: Format) -> Result<ExitCode> {
    let machine = machine::line()?;
    let mut collected = Collected { report: Report::new("groups"), rows: Vec::new(), best: Vec::new(), bar: ProgressBar::new_spinner() };
    if !args.only_learned {
        search::run(args, &mut collected);
    }
    learned::run(args, &mut collected)?;
    if !args.no_training && !args.only_learned {
        learning::run(args, &mut collected)?;
    }
    collected.bar.finish_and_clear();
    collected.report.under(machine);
    tables(&mut collected);
    finish(&collected.report, &args.common, format)
}

fn tables(collected: &mut Collected) {
    let columns = [
        "case",
        "policy",
        "seed",
        "f",
        "gap to best %",
        "sigma_cluster",
        "sigma_node",
        "sigma_container",
        "calls away",
        "unplaced",
        "small %",
        "medium %",
        "large %",
        "entropy",
        "response ms",
        "CPU s",
    ];
    let mut table = Table::new("policies", columns);
    for row in &collected.rows {
        let percent = |x: f64| format!("{:.1}", 100.0 * x);
        table.row([
            row.case.clone(),
            row.policy.clone(),
            row.seed.map_or_else(String::new, |s| s.to_string()),
            format!("{:.5}", row.value),
            collected.gap(row),
            format!("{:.4}", row.terms.cluster),
            format!("{:.4}", row.terms.node),
            format!("{:.4}", row.terms.container),
            format!("{:.2}", row.terms.calls),
            row.unplaced.to_string(),
            percent(row.classes[0]),
            percent(row.classes[1]),
            percent(row.classes[2]),
            format!("{:.2}", row.entropy),
            format!("{:.1}", row.response),
            format!("{:.4}", row.seconds),
        ]);
    }
    let mut best = Table::new("best", ["case", "best f", "how"]);
    for (case, value) in &collected.best {
        best.row([case.clone(), format!("{:.5}", value.value), if value.proven { "proven optimum" } else { "best known" }.to_owned()]);
    }
    collected.report.tables.push(table);
    collected.report.tables.push(best);
}
