//! `drover experiment rejection`: how many applications are rejected without migration, by the paper's ways, by Drover, and at best.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use drover_lab_relocation::experiment::{Avoidable, Plan, RejectionCase, rejection};
use drover_lab_relocation::{APPLICATIONS, Replay};
use drover_report::{Chart, Check, Interval, Report, Shape, Table};

use super::super::{Common, finish};
use super::measure::measure;
use super::{DrawArgs, interval, number};
use drover::globals::Format;

/// `drover experiment rejection`.
#[derive(Debug, Args)]
#[command(after_help = "\
The draws of `drover experiment occupancy`, with the private clusters preferred: (a) no migration, (b) what the paper's published code \
does, (c) the paper's text, (d) Drover with several policies, and (e) the most applications that can run, proven by an exhaustive \
search. A table lists the draws in which Drover rejects more than half as many as (a), or runs fewer than (e), and says whether what it \
rejects had room in another arrangement of what ran. With \
`--members sim` or `local`, (a) and (d) without a policy are deployed, and the others run in memory.

Examples:
  drover experiment rejection
  drover experiment rejection --draws 200 --out rejection/ --strict
  drover experiment rejection --members local --demand 85")]
pub struct RejectionArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: Common,
    /// Which draws are made.
    #[command(flatten)]
    pub draws: DrawArgs,
}

/// No migration, and Drover without a policy.
const REJECT: &str = "reject";
const DROVER: &str = "drover";
/// Most rejections of Drover, relative to those without migration.
const HALF: f64 = 0.5;
/// Fewest running applications of Drover, relative to the optimum.
const NEAR: f64 = 0.95;

/// Runs the experiment and delivers its report; the exit code of the command.
///
/// # Errors
/// An option is out of range, a part cannot be started, a request fails, or a file cannot be written.
pub fn run(args: &RejectionArgs, format: Format) -> Result<ExitCode> {
    measure(&args.draws, &args.common, rejection, |plan, cases, ran| {
        let mut report = report(plan, cases);
        ran.tell(&mut report);
        finish(&report, &args.common, format)
    })
}

fn report(plan: &Plan, cases: &[RejectionCase]) -> Report {
    let mut report = Report::new("rejection");
    report.finding(format!("{} draws from seed {}; rejected of {APPLICATIONS} applications, in the mean:", plan.draws, plan.seed));
    report.findings.extend(cases.iter().map(finding));
    report.finding("draws in which Drover without a policy falls short:");
    report.findings.extend(cases.iter().map(shortfall));
    report.tables = vec![strategies(cases), short(cases)];
    report.charts.push(chart(cases));
    report.checks = checks(cases);
    report
}

fn finding(case: &RejectionCase) -> String {
    let mean = |name: &str| rejected(case.arm(name)).mean;
    let share = |name: &str| of_base(relative(case, name));
    format!(
        "  demand {} %: {:.2} without migration, {:.2} by the paper's text ({} of that), {:.2} by the published code ({}, and {:.2} \
         applications that ran are stopped), {:.2} by Drover ({}), {:.2} at least ({})",
        case.percent,
        mean(REJECT),
        mean("text"),
        share("text"),
        mean("code"),
        share("code"),
        interval(case.arm("code"), |run| run.stopped() as f64).mean,
        mean(DROVER),
        share(DROVER),
        left_out(case).mean,
        of_base(left_out(case).mean / mean(REJECT))
    )
}

/// A share of the rejections without migration; a dash if there are none.
fn of_base(share: f64) -> String {
    if share.is_finite() { format!("{:.0} %", 100.0 * share) } else { "-".to_owned() }
}

/// In how many draws Drover falls short, and why.
fn shortfall(case: &RejectionCase) -> String {
    let draws: Vec<Shortfall> = Shortfall::all(case).collect();
    let count = |holds: &dyn Fn(&Shortfall) -> bool| draws.iter().filter(|draw| holds(draw)).count();
    format!(
        "  demand {} %: in {} it rejects more than (a), in {} more than half as many; in {} of these the optimum does, too. In {} it runs \
         fewer applications than (e); in {} of these nothing that it rejects had room in any arrangement of what ran",
        case.percent,
        count(&|draw| draw.drover > draw.without),
        count(&Shortfall::is_more_than_half),
        count(&|draw| draw.is_more_than_half() && 2 * draw.least > draw.without),
        count(&Shortfall::is_behind),
        count(&|draw| draw.is_behind() && draw.avoidable.yes + draw.avoidable.unknown == 0)
    )
}

/// The rejections of one draw.
struct Shortfall {
    seed: u64,
    without: usize,
    drover: usize,
    rearranged: usize,
    /// By the optimum.
    least: usize,
    /// Proven: no fewer. Less than `least` if the proof was cut short.
    bound: usize,
    avoidable: Avoidable,
}

impl Shortfall {
    fn all(case: &RejectionCase) -> impl Iterator<Item = Self> {
        let (without, drover) = (case.arm(REJECT), case.arm(DROVER));
        case.seeds.iter().enumerate().map(move |(at, seed)| Shortfall {
            seed: *seed,
            without: without[at].rejected(),
            drover: drover[at].rejected(),
            rearranged: APPLICATIONS - case.rearranged[at].applications.len(),
            least: APPLICATIONS - case.optimum[at].applications.len(),
            bound: APPLICATIONS - case.optimum[at].at_most,
            avoidable: case.avoidable[at],
        })
    }

    fn is_more_than_half(&self) -> bool {
        2 * self.drover > self.without
    }

    fn is_behind(&self) -> bool {
        self.drover > self.least
    }
}

fn rejected(runs: &[Replay]) -> Interval {
    interval(runs, |run| run.rejected() as f64)
}

/// Applications that the optimum leaves out.
fn left_out(case: &RejectionCase) -> Interval {
    interval(&case.optimum, |best| (APPLICATIONS - best.applications.len()) as f64)
}

/// The rejections under a strategy, relative to those without migration; NaN if there are none without.
fn relative(case: &RejectionCase, name: &str) -> f64 {
    rejected(case.arm(name)).mean / rejected(case.arm(REJECT)).mean
}

/// The running applications under a strategy, relative to the optimum.
fn beside_optimum(case: &RejectionCase, runs: &[Replay]) -> f64 {
    (APPLICATIONS as f64 - rejected(runs).mean) / (APPLICATIONS as f64 - left_out(case).mean)
}

fn strategies(cases: &[RejectionCase]) -> Table {
    let heads = [
        "demand [%]",
        "strategy",
        "what it does",
        "rejected",
        "of applications [%]",
        "of (a) [%]",
        "running, of (e) [%]",
        "stopped",
        "moves",
        "plans cut short",
    ];
    let mut table = Table::new("rejection", heads);
    for case in cases {
        let base = rejected(case.arm(REJECT)).mean;
        let best = APPLICATIONS as f64 - left_out(case).mean;
        let mut row = |name: &str, what: &str, rejected: Interval, rest: [String; 3]| {
            let cells = [case.percent.to_string(), name.to_owned(), what.to_owned(), number(rejected)];
            let of_base = if base > 0.0 { format!("{:.1}", 100.0 * rejected.mean / base) } else { "-".to_owned() };
            let relative = [
                format!("{:.1}", 100.0 * rejected.mean / APPLICATIONS as f64),
                of_base,
                format!("{:.1}", 100.0 * (APPLICATIONS as f64 - rejected.mean) / best),
            ];
            table.row(cells.into_iter().chain(relative).chain(rest));
        };
        for arm in &case.arms {
            let cut = arm.runs.iter().flat_map(|run| &run.arrivals).filter(|arrival| arrival.cut_short).count();
            let rest = [
                number(interval(&arm.runs, |run| run.stopped() as f64)),
                number(interval(&arm.runs, |run| run.moves() as f64)),
                cut.to_string(),
            ];
            row(arm.name, arm.what, rejected(&arm.runs), rest);
        }
        let none = || ["-".to_owned(), "-".to_owned(), "-".to_owned()];
        let rearranged = interval(&case.rearranged, |run| (APPLICATIONS - run.applications.len()) as f64);
        row("rearranged", "no strategy: each arrival is accepted if what runs can be rearranged freely", rearranged, none());
        row("optimum", "(e) the most applications that can run, the future known", left_out(case), none());
    }
    table
}

/// The draws in which Drover rejects more than half as many as without migration, or runs fewer applications than the optimum.
fn short(cases: &[RejectionCase]) -> Table {
    let heads = ["demand [%]", "seed", "rejected by (a)", "by (d)", "rearranged", "by (e)", "more than half of (a)", "why more than (e)"];
    let mut table = Table::new("draws-short", heads);
    for case in cases {
        for draw in Shortfall::all(case).filter(|draw| draw.is_more_than_half() || draw.is_behind()) {
            table.row([
                case.percent.to_string(),
                draw.seed.to_string(),
                draw.without.to_string(),
                draw.drover.to_string(),
                draw.rearranged.to_string(),
                if draw.bound == draw.least { draw.least.to_string() } else { format!("{} to {}", draw.bound, draw.least) },
                if draw.is_more_than_half() { "yes" } else { "no" }.to_owned(),
                if draw.is_behind() { why(&draw.avoidable) } else { "-".to_owned() },
            ]);
        }
    }
    table
}

fn why(avoidable: &Avoidable) -> String {
    let mut reasons = Vec::new();
    if avoidable.yes > 0 {
        reasons.push(format!("{} had room in another arrangement of what ran, to which Drover found no moves", avoidable.yes));
    }
    if avoidable.no > 0 {
        reasons.push(format!("{} had no room in any arrangement of what ran; others would have to be rejected", avoidable.no));
    }
    if avoidable.unknown > 0 {
        reasons.push(format!("{} not decided within the limit of the search", avoidable.unknown));
    }
    reasons.join("; ")
}

fn chart(cases: &[RejectionCase]) -> Chart {
    let title = format!("Rejected of {APPLICATIONS} applications (means with 95 % intervals)");
    let mut chart = Chart::lines("rejection", title, "mean demand [% of the clusters]", "rejected applications").shape(Shape::Bars);
    let over_demand = |measure: &dyn Fn(&RejectionCase) -> Interval| -> Vec<(f64, Interval)> {
        cases.iter().map(|case| (f64::from(case.percent), measure(case))).collect()
    };
    let labels = [(REJECT, "(a) no migration"), ("code", "(b) published code"), ("text", "(c) paper's text"), (DROVER, "(d) Drover")];
    for (name, label) in labels {
        chart = chart.intervals(label, &over_demand(&|case| rejected(case.arm(name))));
    }
    chart.intervals("(e) optimum", &over_demand(&left_out))
}

fn checks(cases: &[RejectionCase]) -> Vec<Check> {
    let mut checks = Vec::new();
    for case in cases {
        // The worst of all policies counts.
        let own = || case.arms.iter().filter(|arm| arm.name.starts_with(DROVER));
        let percent = case.percent;
        // Where nothing is rejected without migration, there is nothing to halve.
        if rejected(case.arm(REJECT)).mean > 0.0 {
            let worst = own().map(|arm| relative(case, arm.name)).fold(f64::NEG_INFINITY, f64::max);
            checks.push(Check::at_most(format!("demand {percent} %: rejections of Drover beside (a), worst policy"), HALF, worst, "times"));
        }
        let worst = own().map(|arm| beside_optimum(case, &arm.runs)).fold(f64::INFINITY, f64::min);
        checks.push(Check::at_least(
            format!("demand {percent} %: running applications of Drover beside (e), worst policy"),
            NEAR,
            worst,
            "times",
        ));
        let stopped: usize = own().flat_map(|arm| &arm.runs).map(Replay::stopped).sum();
        checks.push(Check::at_most(
            format!("demand {percent} %: applications that ran and are stopped by Drover"),
            0.0,
            stopped as f64,
            "",
        ));
        let unproven = case.optimum.iter().filter(|best| !best.is_proven()).count();
        checks.push(Check::at_most(format!("demand {percent} %: draws whose optimum is not proven"), 0.0, unproven as f64, ""));
    }
    checks
}

#[cfg(test)]
mod tests {
    use drover_lab_relocation::experiment::in_memory;

    use super::super::CHECKED;
    use super::*;

    fn cases(draws: u64) -> Vec<RejectionCase> {
        rejection(&Plan { seed: 1, draws, demands: vec![CHECKED, 115] }, &mut in_memory, &|| {}).unwrap()
    }

    #[test]
    fn every_table_chart_and_check_is_filled() {
        let cases = cases(4);
        let report = report(&Plan { seed: 1, draws: 4, demands: vec![CHECKED, 115] }, &cases);
        assert!(report.tables.iter().all(|table| !table.rows.is_empty()));
        assert!(report.charts[0].svg("").unwrap().contains("</svg>"));
        assert!(report.checks.len() == 8 && report.checks.iter().all(|check| !check.got.contains("NaN")), "{:?}", report.checks);
    }

    #[test]
    fn draws_short_of_the_optimum_say_why() {
        let cases = cases(4);
        let table = short(&cases);
        let behind = |row: &&Vec<String>| row[3].parse::<usize>().unwrap() > row[5].parse::<usize>().unwrap();
        assert!(table.rows.iter().filter(behind).count() > 0 && table.rows.iter().filter(behind).all(|row| row[7].contains("arrangement")));
    }

    #[test]
    fn checks_fail_where_drover_does_not_migrate() {
        let mut cases = cases(4);
        for case in &mut cases {
            let without = case.arm(REJECT).to_vec();
            case.arms.iter_mut().filter(|arm| arm.name == DROVER).for_each(|arm| arm.runs = without.clone());
        }
        let failed: Vec<String> = checks(&cases).into_iter().filter(|check| !check.ok).map(|check| check.name).collect();
        assert!(
            failed.iter().any(|name| name.contains("beside (a)")) && failed.iter().any(|name| name.contains("115 %: running")),
            "{failed:?}"
        );
    }
}
