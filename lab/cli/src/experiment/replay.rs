//! `drover experiment replay`: applications come and go over days on members with prices, under several policies.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use drover_lab_relocation::experiment::{DaysArm, days_arms};
use drover_lab_relocation::{Days, DaysPolicy, HEADER, Market, PROVIDERS, Trace, days};
use drover_report::{Chart, Check, Report, Shape, Table, percentile};
use indicatif::{ProgressBar, ProgressStyle};

use super::groups::cpu;
use super::{Common, finish};
use crate::bench::machine;
use drover::globals::Format;

/// `drover experiment replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Half of the members are your own and cost 1 an hour and core; the others belong to three clouds and cost 2.5, 3 and 5. Each has one node of \
16 cores and 32 GiB. Drover's own decisions and plans place and move the applications, on a fleet in memory; moves take no time.

A trace is a CSV file with the columns
  arrives_s,departs_s,pods,cpu_m,memory_mib,where,movable,priority,used_percent
where `where` is all, private (your own members) or zone-N (five members each), `movable` is true or false, and `priority` is 1 to 10. An \
application runs on one member. A trace is counted until its last departure. Drover has no policy that brings applications home when there is room again, so none is compared.

Examples:
  drover experiment replay
  drover experiment replay --members 1000 --days 2 --demand 90 --out replay/
  drover experiment replay --members 20 --trace week.csv")]
pub struct ReplayArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: Common,
    /// Number of members; several with commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10,100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub members: Vec<u32>,
    /// Applications from a file, instead of drawn ones.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["days", "demand"])]
    pub trace: Option<PathBuf>,
    /// Days of drawn applications.
    #[arg(long, default_value_t = 3.0, value_parser = number_of_days)]
    pub days: f64,
    /// Mean demand of drawn applications in percent of what the members have. By day it is half as much again, by night half.
    #[arg(long, value_name = "PERCENT", default_value_t = 85, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub demand: u32,
    /// Only these policies; several with semicolons, since some names have commas.
    #[arg(long, value_name = "NAME", value_delimiter = ';')]
    pub policy: Vec<String>,
}

/// Limit on the CPU time of a plan at the 99th percentile, in milliseconds: the product's.
const PLAN_MS: f64 = 50.0;
const NEVER: &str = "never";
const DROVER: &str = "drover";

fn number_of_days(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|days| (0.1..=366.0).contains(days)).ok_or_else(|| "it is not 0.1 to 366".to_owned())
}

/// All policies on so many members.
struct Case {
    members: u32,
    arms: Vec<(DaysArm, Days)>,
}

impl Case {
    fn arm(&self, name: &str) -> Option<&Days> {
        self.arms.iter().find(|(arm, _)| arm.name == name).map(|(_, days)| days)
    }
}

/// Runs the experiment and delivers its report; the exit code of the command.
///
/// # Errors
/// An option is out of range, or a file cannot be read or written.
pub fn run(args: &ReplayArgs, format: Format) -> Result<ExitCode> {
    let machine = machine::line()?;
    let read = match &args.trace {
        Some(file) => Some(read(file)?),
        None => None,
    };
    let arms = chosen(&args.policy)?;
    if let Some(trace) = &read {
        args.members.iter().try_for_each(|members| has_labels(trace, *members))?;
    }
    let mut cases = Vec::new();
    for members in &args.members {
        let market = Market::new(*members as usize);
        let trace = match &read {
            Some(trace) => trace.clone(),
            None => Trace::draw(args.common.seed, args.days, args.demand, market.millicores(), market.zones()),
        };
        ensure!(!trace.apps.is_empty(), "no application arrives at {members} members in {} days: ask for more of either", args.days);
        cases.push(case(*members, &market, &trace, &arms)?);
    }
    let source = match &args.trace {
        Some(file) => format!("trace {}", file.display()),
        None => format!("{} days drawn from seed {}, mean demand {} %", args.days, args.common.seed, args.demand),
    };
    let mut report = report(&source, &cases);
    report.under(format!("{machine}, after: {}; {source}", machine::load()));
    finish(&report, &args.common, format)
}

/// The policies with these names; all without a name.
fn chosen(names: &[String]) -> Result<Vec<DaysArm>> {
    let arms = days_arms();
    if let Some(unknown) = names.iter().find(|name| arms.iter().all(|arm| arm.name != **name)) {
        bail!("--policy: there is no policy {unknown:?}; there are {}", arms.iter().map(|arm| arm.name).collect::<Vec<_>>().join("; "));
    }
    Ok(arms.into_iter().filter(|arm| names.is_empty() || names.iter().any(|name| name == arm.name)).collect())
}

/// Refuses a trace with a label that none of so many members has.
fn has_labels(trace: &Trace, members: u32) -> Result<()> {
    let market = Market::new(members as usize);
    let labels: BTreeSet<&str> = trace.apps.iter().map(|app| app.label.as_str()).collect();
    match labels.into_iter().find(|label| !market.knows(label)) {
        Some(label) => {
            bail!("none of {members} members has the label {label}: `where` is all, private or zone-1 to zone-{}", market.zones())
        }
        None => Ok(()),
    }
}

fn read(file: &PathBuf) -> Result<Trace> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Trace::parse(&text).map_err(|why| anyhow!("{}: {why}. The first line is {HEADER}", file.display()))
}

/// Runs each policy in a thread of its own.
fn case(members: u32, market: &Market, trace: &Trace, arms: &[DaysArm]) -> Result<Case> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} arrivals at {msg}, {elapsed} so far, {eta} left")?;
    let bar = ProgressBar::new((trace.apps.len() * arms.len()) as u64).with_style(style).with_message(format!("{members} members"));
    bar.enable_steady_tick(Duration::from_millis(500));
    // CPU time of the policy's own thread. The other policies run at the same time, which makes plans somewhat slower.
    let clock = || cpu() * 1e3;
    let run = |arm: &DaysArm| {
        let result = days(trace, market, &arm.policy, &clock, &|| bar.inc(1));
        bar.suspend(|| eprintln!("{members} members, {}: {}, in {:.0} s of CPU", arm.name, told(&result), cpu()));
        result
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = arms.iter().map(|arm| scope.spawn(|| run(arm))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    bar.finish_and_clear();
    let results: Result<Vec<Days>> = results.into_iter().map(|result| result.map_err(|_| anyhow!("a policy ended with a panic"))).collect();
    Ok(Case { members, arms: arms.iter().cloned().zip(results?).collect() })
}

/// A policy's result in short: it is shown as soon as the policy has ended, since the others may need hours.
fn told(days: &Days) -> String {
    format!(
        "{} of {} arrivals rejected, {} moves, {} killed, {:.3} for a core hour, {:.3} beside the least",
        days.rejected,
        days.arrived,
        days.moves,
        days.killed,
        price(days),
        days.cost / days.least
    )
}

fn share(part: usize, of: usize) -> f64 {
    100.0 * part as f64 / of as f64
}

/// Cost of a core for an hour, in the mean.
fn price(days: &Days) -> f64 {
    days.cost / days.core_hours
}

fn report(source: &str, cases: &[Case]) -> Report {
    let mut report = Report::new("replay");
    let providers = PROVIDERS.map(|one| format!("{} {}", one.name, one.price)).join(", ");
    report.finding(format!("{source}; price of a core for an hour: {providers}"));
    for case in cases {
        let text = case.arms.iter().map(|(arm, days)| {
            let killed = if days.killed > 0 { format!(", {} killed", days.killed) } else { String::new() };
            format!("{} {:.2} %{killed}", arm.name, share(days.rejected, days.arrived))
        });
        report.finding(format!("  {} members, rejected: {}", case.members, text.collect::<Vec<_>>().join("; ")));
    }
    report.tables.push(table(cases));
    report.charts = charts(cases);
    report.checks = cases.iter().flat_map(checks).collect();
    report
}

fn table(cases: &[Case]) -> Table {
    let heads = [
        "members",
        "policy",
        "what it does",
        "arrived",
        "rejected",
        "rejected [%]",
        "moves",
        "moves per placed application",
        "killed",
        "core hours lost by killing",
        "core hours",
        "cost",
        "cost of a core hour",
        "cost beside the least possible for what ran",
        "plans",
        "plan p50 [CPU ms]",
        "plan p99 [CPU ms]",
        "plan most [CPU ms]",
        "plans cut short",
    ];
    let mut table = Table::new("replay", heads);
    for case in cases {
        for (arm, days) in &case.arms {
            let plan = |part: f64| if days.plans.is_empty() { "-".to_owned() } else { format!("{:.1}", percentile(&days.plans, part)) };
            table.row([
                case.members.to_string(),
                arm.name.to_owned(),
                arm.what.to_owned(),
                days.arrived.to_string(),
                days.rejected.to_string(),
                format!("{:.2}", share(days.rejected, days.arrived)),
                days.moves.to_string(),
                format!("{:.3}", days.moves as f64 / (days.arrived - days.rejected).max(1) as f64),
                days.killed.to_string(),
                format!("{:.0}", days.lost),
                format!("{:.0}", days.core_hours),
                format!("{:.0}", days.cost),
                format!("{:.3}", price(days)),
                format!("{:.3}", days.cost / days.least),
                days.plans.len().to_string(),
                plan(0.5),
                plan(0.99),
                plan(1.0),
                days.cut_short.to_string(),
            ]);
        }
    }
    table
}

fn charts(cases: &[Case]) -> Vec<Chart> {
    let chart = |name: &str, title: &str, axis: &str, measure: &dyn Fn(&Days) -> f64| {
        let mut chart = Chart::lines(name, title, "members", axis).shape(Shape::Bars);
        for (arm, _) in cases.first().map(|case| case.arms.as_slice()).unwrap_or_default() {
            let points = cases.iter().filter_map(|case| Some((f64::from(case.members), measure(case.arm(arm.name)?))));
            chart = chart.series(arm.name, points.collect());
        }
        chart
    };
    vec![
        chart("replay-rejected", "Rejected applications", "rejected [%]", &|days| share(days.rejected, days.arrived)),
        chart("replay-cost", "Cost of a core hour", "cost of a core hour", &price),
    ]
}

fn checks(case: &Case) -> Vec<Check> {
    let members = case.members;
    let own = || case.arms.iter().filter(|(arm, _)| matches!(arm.policy, DaysPolicy::Drover { .. }));
    let mut checks = Vec::new();
    for (arm, days) in own() {
        let name = arm.name;
        checks.push(Check::at_most(format!("{members} members, {name}: applications that are stopped"), 0.0, days.killed as f64, ""));
        if !days.plans.is_empty() {
            checks.push(Check::at_most(
                format!("{members} members, {name}: CPU time of a plan, p99"),
                PLAN_MS,
                percentile(&days.plans, 0.99),
                "ms",
            ));
        }
    }
    if let (Some(never), Some(drover)) = (case.arm(NEVER), case.arm(DROVER)) {
        checks.push(Check::holds(
            format!("{members} members: rejections of Drover beside those without migration"),
            format!("fewer than {}, or none", never.rejected),
            drover.rejected.to_string(),
            drover.rejected < never.rejected || drover.rejected == 0,
        ));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases() -> Vec<Case> {
        let market = Market::new(5);
        let trace = Trace::draw(2, 0.7, 110, market.millicores(), market.zones());
        vec![case(5, &market, &trace, &days_arms()).unwrap()]
    }

    #[test]
    fn every_table_chart_and_check_is_filled() {
        let cases = cases();
        let report = report("a test", &cases);
        assert_eq!(report.tables[0].rows.len(), days_arms().len());
        assert!(!report.tables[0].text().contains("NaN"), "{}", report.tables[0].text());
        assert!(report.charts.len() == 2 && report.charts.iter().all(|chart| chart.svg("").unwrap().contains("</svg>")));
        assert_eq!(report.checks.len(), 9, "{:?}", report.checks);
    }

    #[test]
    fn unknown_policy_is_refused_beside_a_known_one() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        assert_eq!(chosen(&names(&[DROVER])).unwrap().len(), 1);
        assert!(chosen(&names(&[DROVER, "foo"])).is_err_and(|error| error.to_string().contains("foo")));
        assert_eq!(chosen(&[]).unwrap().len(), days_arms().len());
    }

    #[test]
    fn label_that_no_member_has_is_refused() {
        let trace = Trace::parse(&format!("{HEADER}\n0,60,1,200,256,zone-3,true,1,10\n")).unwrap();
        assert!(has_labels(&trace, 10).is_err_and(|error| error.to_string().contains("zone-1 to zone-2")));
        assert!(has_labels(&trace, 15).is_ok());
    }

    #[test]
    fn checks_fail_where_drover_kills_or_rejects_as_many() {
        let mut case = cases().remove(0);
        let never = case.arm(NEVER).unwrap().rejected;
        for (arm, days) in &mut case.arms {
            if arm.name == DROVER {
                (days.killed, days.rejected) = (1, never);
            }
        }
        let failed: Vec<String> = checks(&case).into_iter().filter(|check| !check.ok).map(|check| check.name).collect();
        assert!(failed.iter().any(|name| name.contains("stopped")) && failed.iter().any(|name| name.contains("rejections")), "{failed:?}");
    }
}
