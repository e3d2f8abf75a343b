//! `drover experiment occupancy`: how full private and public clusters are, with and without provider priority and migration.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use drover_lab_relocation::Occupancy;
use drover_lab_relocation::experiment::{MARKS, OccupancyCase, OccupancySample, Plan, occupancy};
use drover_report::{Chart, Check, Interval, Report, Shape, Table};

use super::super::{Common, finish};
use super::measure::measure;
use super::{CHECKED, DrawArgs, interval, number, percent};
use drover::globals::Format;

/// `drover experiment occupancy`.
#[derive(Debug, Args)]
#[command(after_help = "\
Fifteen random applications of one to three microservices arrive at the private clusters A and B and the public cluster C, and none \
departs. Drover's own decisions and plans place and move them, in memory or (`--members`) deployed. The checks are for a demand of 85 %.

Examples:
  drover experiment occupancy
  drover experiment occupancy --draws 200 --demand 85 --out occupancy/
  drover experiment occupancy --members sim --demand 85")]
pub struct OccupancyArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: Common,
    /// Which draws are made.
    #[command(flatten)]
    pub draws: DrawArgs,
}

/// Without and with provider priority and migration, as the paper compares them.
const WITHOUT: &str = "neither";
const WITH: &str = "both";
/// Private clusters are far ahead of the public one if their occupancy is so many times as high.
const FAR_AHEAD: f64 = 2.0;
/// Largest difference of occupancies that are about equal, in percent points.
const ABOUT_EQUAL: f64 = 5.0;

/// Runs the experiment and delivers its report; the exit code of the command.
///
/// # Errors
/// An option is out of range, a part cannot be started, a request fails, or a file cannot be written.
pub fn run(args: &OccupancyArgs, format: Format) -> Result<ExitCode> {
    measure(&args.draws, &args.common, occupancy, |plan, cases, ran| {
        let mut report = report(plan, cases);
        ran.tell(&mut report);
        finish(&report, &args.common, format)
    })
}

fn report(plan: &Plan, cases: &[OccupancyCase]) -> Report {
    let mut report = Report::new("occupancy");
    report.finding(format!(
        "{} draws from seed {}; occupancy of private (A and B) and public (C) clusters by requested CPU after {} deployments:",
        plan.draws,
        plan.seed,
        MARKS.map(|mark| mark.to_string()).join(", ")
    ));
    for case in cases {
        for name in [WITHOUT, WITH] {
            let course: Vec<String> = (0..MARKS.len())
                .map(|at| {
                    let of = |share: fn(&Occupancy) -> f64| 100.0 * interval(case.arm(name), |sample| share(&sample.occupancy[at])).mean;
                    format!("{:.0} and {:.0} %", of(|one| one.private.cpu), of(|one| one.public.cpu))
                })
                .collect();
            report.finding(format!("  demand {} %, {name} priority and migration: {}", case.percent, course.join("; ")));
        }
    }
    report.tables.push(table(cases));
    report.charts = cases.iter().flat_map(|case| [chart(case, "cpu", "CPU"), chart(case, "memory", "memory")]).collect();
    if let Some(case) = cases.iter().find(|case| case.percent == CHECKED) {
        report.checks = checks(case);
    }
    report
}

fn table(cases: &[OccupancyCase]) -> Table {
    let heads = [
        "demand [%]",
        "priority, migration",
        "deployments",
        "private CPU [%]",
        "private memory [%]",
        "public CPU [%]",
        "public memory [%]",
        "all CPU [%]",
        "all memory [%]",
        "running applications",
    ];
    let mut table = Table::new("occupancy", heads);
    for case in cases {
        for arm in &case.arms {
            for (at, mark) in MARKS.iter().enumerate() {
                let share = |of: fn(&Occupancy) -> f64| percent(interval(&arm.samples, |sample| of(&sample.occupancy[at])));
                table.row([
                    case.percent.to_string(),
                    arm.name.to_owned(),
                    mark.to_string(),
                    share(|one| one.private.cpu),
                    share(|one| one.private.memory),
                    share(|one| one.public.cpu),
                    share(|one| one.public.memory),
                    share(|one| one.total.cpu),
                    share(|one| one.total.memory),
                    number(interval(&arm.samples, |sample| sample.running[at] as f64)),
                ]);
            }
        }
    }
    table
}

fn chart(case: &OccupancyCase, resource: &str, title: &str) -> Chart {
    let cpu = resource == "cpu";
    let mut chart = Chart::lines(
        format!("occupancy-{}-{resource}", case.percent),
        format!("Requested {title} at a demand of {} % (means with 95 % intervals)", case.percent),
        "deployments",
        "requested / allocatable [%]",
    )
    .shape(Shape::Bars);
    for name in [WITHOUT, WITH] {
        for place in ["private", "public"] {
            let share = |one: &Occupancy| {
                let share = if place == "private" { one.private } else { one.public };
                100.0 * if cpu { share.cpu } else { share.memory }
            };
            let points: Vec<(f64, Interval)> =
                (0..MARKS.len()).map(|at| (MARKS[at] as f64, interval(case.arm(name), |sample| share(&sample.occupancy[at])))).collect();
            let label = if name == WITH { "with priority and migration" } else { "without" };
            chart = chart.intervals(format!("{place}, {label}"), &points);
        }
    }
    chart
}

/// The statements of the paper about the figure. The differences of a draw are compared, since both arms have the same applications.
fn checks(case: &OccupancyCase) -> Vec<Check> {
    let (without, with) = (case.arm(WITHOUT), case.arm(WITH));
    let mut checks = Vec::new();
    for (at, mark) in MARKS.iter().enumerate() {
        let apart = interval(without, |sample| 100.0 * (sample.occupancy[at].private.cpu - sample.occupancy[at].public.cpu));
        checks.push(Check::holds(
            format!("after {mark}, without: private minus public CPU"),
            format!("95 % interval reaches 0 ± {ABOUT_EQUAL} percent points"),
            format!("{} percent points", number(apart)),
            apart.low <= ABOUT_EQUAL && apart.high >= -ABOUT_EQUAL,
        ));
    }
    for (at, mark) in MARKS.iter().enumerate().take(2) {
        let mean = |of: fn(&Occupancy) -> f64| interval(with, |sample| of(&sample.occupancy[at])).mean;
        let ratio = mean(|one| one.private.cpu) / mean(|one| one.public.cpu);
        checks.push(Check::at_least(format!("after {mark}, with both: private CPU beside public"), FAR_AHEAD, ratio, "times"));
        let more = more_in_all(without, with, at);
        checks.push(Check::within(format!("after {mark}: CPU of all clusters, with minus without"), 0.0, 1.0, more.mean, "percent points"));
    }
    let jump = |from: usize, to: usize| {
        interval(with, |sample| 100.0 * (sample.occupancy[to].public.cpu - sample.occupancy[from].public.cpu)).mean
    };
    let (before, last) = (jump(0, 1), jump(1, 2));
    checks.push(Check::holds(
        "with both: public CPU rises more from 10 to 15 than from 5 to 10",
        format!("more than {before:.1} percent points"),
        format!("{last:.1} percent points"),
        last > before,
    ));
    let more = more_in_all(without, with, 2);
    checks.push(Check::holds(
        "after 15: CPU of all clusters, with minus without",
        "above 0 percent points",
        format!("{} percent points", number(more)),
        more.mean > 0.0,
    ));
    checks
}

/// The difference of the CPU occupancy of all clusters, by draw.
fn more_in_all(without: &[OccupancySample], with: &[OccupancySample], at: usize) -> Interval {
    let pairs: Vec<_> = without.iter().zip(with).collect();
    interval(&pairs, |(without, with)| 100.0 * (with.occupancy[at].total.cpu - without.occupancy[at].total.cpu))
}

#[cfg(test)]
mod tests {
    use drover_lab_relocation::experiment::in_memory;

    use super::*;

    #[test]
    fn every_table_chart_and_check_is_filled() {
        let plan = Plan { seed: 1, draws: 2, demands: vec![CHECKED, 115] };
        let cases = occupancy(&plan, &mut in_memory, &|| {}).unwrap();
        let report = report(&plan, &cases);
        assert_eq!(report.tables[0].rows.len(), 2 * 4 * MARKS.len());
        assert!(report.charts.len() == 4 && report.charts.iter().all(|chart| chart.svg("").unwrap().contains("</svg>")));
        assert!(report.checks.len() == 9 && report.checks.iter().all(|check| !check.got.contains("NaN")), "{:?}", report.checks);
    }

    #[test]
    fn checks_fail_where_priority_and_migration_do_nothing() {
        let mut case = occupancy(&Plan { seed: 1, draws: 5, demands: vec![CHECKED] }, &mut in_memory, &|| {}).unwrap().remove(0);
        let same = case.arm(WITHOUT).to_vec();
        case.arms.iter_mut().filter(|arm| arm.name == WITH).for_each(|arm| arm.samples = same.clone());
        let failed: Vec<String> = checks(&case).into_iter().filter(|check| !check.ok).map(|check| check.name).collect();
        assert!(
            failed.iter().any(|name| name.contains("private CPU beside public")) && failed.iter().any(|name| name.starts_with("after 15"))
        );
    }
}
