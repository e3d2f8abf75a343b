//! `drover experiment memory-guard --real`: the paper's 4 GB jobs at 140 %, scaled to a node of 1 GiB (drover_lab_node), as real processes on
//! a real containerd with the real OOM killer and the real agent.

use std::num::NonZero;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail, ensure};
use drover_lab_node::{JOBS, POLICIES, Trial, lacking, trial};
use drover_report::{Check, Interval, Report, Table};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;
use tokio::signal::unix::{SignalKind, signal};

/// Default number of seeds.
pub const SEEDS: u64 = 5;
/// Number of workflows at the same time. Each needs a GiB and less than half a core.
const PER_CORE: usize = 2;
const MOST_AT_ONCE: usize = POLICIES.len();

/// Number of workflows.
pub fn runs(seeds: u64) -> u64 {
    seeds * POLICIES.len() as u64
}

/// Runs every policy on each seed, several workflows at the same time. When interrupted, it stops everything that it started.
///
/// # Errors
/// A program is missing, a container cannot be started, or it is interrupted.
pub async fn carry_out(first: u64, seeds: u64, cycles: u32, bar: &ProgressBar) -> Result<Vec<Trial>> {
    let lacks = lacking();
    ensure!(
        lacks.is_empty(),
        "--real runs real containers, and this machine lacks {}; without --real the same policies run in a simulator",
        lacks.join("; ")
    );
    let program = std::env::current_exe()?.with_file_name("drover-memory-guard");
    ensure!(
        program.exists(),
        "{} does not exist: build all programs with `cargo build --workspace --bins` and the same profile",
        program.display()
    );
    let at_once = (available_parallelism().map_or(1, NonZero::get) * PER_CORE).min(MOST_AT_ONCE);
    let all = (first..first + seeds).flat_map(|seed| POLICIES.map(|policy| (policy, seed)));
    let one = async |(policy, seed)| {
        let trial = trial(&program, policy, seed, cycles).await.with_context(|| format!("{policy}, seed {seed}"))?;
        bar.inc(1);
        Ok(trial)
    };
    let mut stop = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        trials = stream::iter(all).map(one).buffered(at_once).try_collect() => trials,
        _ = stop.0.recv() => bail!("stopped; all containers were removed"),
        _ = stop.1.recv() => bail!("interrupted; all containers were removed"),
    }
}

/// The report.
pub fn report(trials: &[Trial]) -> Report {
    let mut report = Report::new("memory-guard-real");
    let none = Arm::of(trials, POLICIES[0]);
    let mut summary = Table::new("policies", ["guard", "restarts", "per container", "change [%]", "workflow [s]", "change [%]"]);
    for policy in POLICIES {
        let arm = Arm::of(trials, policy);
        let (restarts, time) = (change(arm.restarts, none.restarts), change(arm.workflow.mean, none.workflow.mean));
        summary.row([
            policy.to_owned(),
            arm.restarts.to_string(),
            format!("{:.2}", arm.restarts / arm.containers),
            format!("{restarts:+.1}"),
            format!("{:.1} ± {:.1}", arm.workflow.mean, arm.workflow.half()),
            format!("{time:+.1}"),
        ]);
        if policy == POLICIES[0] {
            let name = "without a guard the kernel kills (else the rest proves nothing): restarts";
            report.checks.push(Check::at_least(name, 1.0, arm.restarts, ""));
            continue;
        }
        report.finding(format!("{policy}: restarts {restarts:+.1} %, workflow time {time:+.1} % against no guard"));
        // The paper's rule spares a third over five seeds of forty cycles, and one of them may show nothing.
        let spared = if policy == "paper" { 0.0 } else { -90.0 };
        report.checks.push(Check::at_most(format!("{policy}, real containers: restarts"), spared, restarts, "%"));
    }
    report.tables = vec![summary, each(trials)];
    report
}

/// All trials of a policy.
struct Arm {
    restarts: f64,
    containers: f64,
    workflow: Interval,
}

impl Arm {
    fn of(trials: &[Trial], policy: &str) -> Self {
        let of: Vec<&Trial> = trials.iter().filter(|trial| trial.policy == policy).collect();
        let times: Vec<f64> = of.iter().map(|trial| trial.outcome.makespan.as_secs_f64()).collect();
        Self {
            restarts: of.iter().map(|trial| trial.outcome.restarts as f64).sum(),
            containers: (of.len() * JOBS) as f64,
            workflow: Interval::of(&times),
        }
    }
}

/// The change from `from` to `to`, in percent.
fn change(to: f64, from: f64) -> f64 {
    (to / from - 1.0) * 100.0
}

/// A row per trial; the actions of the guard are as it counted them.
fn each(trials: &[Trial]) -> Table {
    let heads = ["seed", "guard", "restarts", "workflow [s]", "pauses", "held at the start", "sacrificed", "held [s]", "leaked [MiB]"];
    let mut table = Table::new("trials", heads);
    for trial in trials {
        let totals = trial.totals.unwrap_or_default();
        table.row([
            trial.seed.to_string(),
            trial.policy.to_owned(),
            trial.outcome.restarts.to_string(),
            format!("{:.1}", trial.outcome.makespan.as_secs_f64()),
            totals.pauses.to_string(),
            totals.gated.to_string(),
            totals.sacrifices.to_string(),
            format!("{:.1}", totals.paused_seconds),
            format!("{:.1}", totals.leaked_bytes as f64 / f64::from(1 << 20)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use drover_lab_node::Outcome;

    use super::*;

    fn trials(restarts: [usize; 4]) -> Vec<Trial> {
        let outcome = |restarts| Outcome { restarts, makespan: Duration::from_secs(60) };
        let of = |seed| {
            POLICIES.into_iter().zip(restarts).map(move |(policy, n)| Trial {
                policy,
                seed,
                outcome: outcome(n),
                totals: None,
                switched: false,
            })
        };
        (1..=2).flat_map(of).collect()
    }

    #[test]
    fn nine_of_ten_spared_is_enough_and_less_is_not() {
        let good = report(&trials([20, 11, 2, 0]));
        assert!(good.ok(), "{:?}", good.checks);
        assert_eq!(good.tables[0].rows.len(), 4);
        assert_eq!(good.tables[1].rows.len(), 8);
        let failed = |restarts| report(&trials(restarts)).checks.iter().filter(|check| !check.ok).count();
        assert_eq!(failed([20, 19, 3, 0]), 1, "bank spares too few");
        assert_eq!(failed([20, 21, 0, 0]), 1, "the paper's rule spares none");
        assert_eq!(failed([20, 21, 3, 3]), 3);
        assert!(!report(&trials([0, 0, 0, 0])).ok(), "where nobody is killed nothing is shown");
    }
}
