//! The report of `--real`: what both cases cost in the cluster, beside the same load in the simulator.

use drover_autoscaling::qlearning::Capacity;
use drover_lab_autoscaling::sim::Totals;
use drover_report::{Chart, Check, Interval, Report, Table};

use super::{MOST, PENALTY, PERIOD};

/// Share of the periods in which a learner must have decided.
const DECIDED: f64 = 0.9;
/// The agent saves a table after so many periods of learning; half of them may be lost.
const SAVED: f64 = 0.5 / 20.0;

/// Everything that was measured.
pub struct Real {
    /// Pods, and the requests per second that they serve.
    pub points: Vec<(i32, f64)>,
    pub capacity: Capacity,
    /// Seconds until a pod serves.
    pub delay: f64,
    /// Decisions in the pass in the cluster.
    pub decisions: u64,
    /// Seconds of the pass.
    pub training: usize,
    /// Requests of the load online.
    pub due: usize,
    /// Case b and case c, online in the cluster.
    pub cases: [Lived; 2],
    /// The same load in the simulator: one pass, then online.
    pub simulated: Vec<Totals>,
    /// Requests per second, of the pass and online.
    pub rates: Vec<f64>,
}

/// A case, online in the cluster.
pub struct Lived {
    pub name: &'static str,
    pub arrived: u32,
    pub served: u32,
    pub expired: u32,
    pub pod_seconds: f64,
    /// Pods that were set, from each of these seconds on.
    pub pods: Vec<(f64, i32)>,
    /// Versions of the table that the agent saved.
    pub saved: u64,
}

impl Lived {
    fn cost(&self) -> f64 {
        self.pod_seconds + PENALTY * f64::from(self.expired)
    }
}

/// Findings, tables, charts and checks.
pub fn report(real: &Real) -> Report {
    let mut report = Report::new("autoscaling-real");
    let [b, c] = &real.cases;
    let simulated = |of: fn(&Totals) -> f64| Interval::of(&real.simulated.iter().map(of).collect::<Vec<_>>());
    let cost = simulated(|totals| totals.cost(PENALTY));
    let points: Vec<String> = real.points.iter().map(|(pods, rate)| format!("{pods} pods {rate:.1}")).collect();
    report.finding(format!(
        "measured: {} requests per second, so {:.1} per pod and {:.1} fixed; a pod serves after {} s; the peak of the load is what {MOST} pods serve",
        points.join(", "),
        real.capacity.per_pod,
        real.capacity.fixed,
        real.delay
    ));
    let [saving, beside] = [100.0 * (1.0 - b.cost() / c.cost()), b.cost() / cost.mean];
    report.finding(format!(
        "a pass in the cluster (b) cost {:.0} pod-seconds, one in the simulator (c) {:.0}; the simulator says {:.0} ± {:.0}, so b cost {beside:.2} times as much. One run is one sample",
        b.cost(),
        c.cost(),
        cost.mean,
        cost.half()
    ));
    report.tables.push(outcomes(real));
    report.charts = charts(real);

    let lost = real.cases.iter().filter(|case| case.arrived as usize != real.due || case.arrived != case.served + case.expired).count();
    let got = format!("{} requests of each case; {lost} cases lack some", real.due);
    report.checks.push(Check::holds("every request was sent, and was answered in time or expired", "in both cases", got, lost == 0));
    let periods = (real.training / PERIOD) as f64;
    report.checks.push(Check::at_least("decisions in the pass in the cluster", DECIDED * periods, real.decisions as f64, ""));
    for case in &real.cases {
        let changes: Vec<i32> = case.pods.windows(2).map(|two| two[1].1 - two[0].1).collect();
        let within = case.pods.iter().all(|(_, pods)| (1..=MOST).contains(pods));
        let got = format!("{} up, {} down", changes.iter().filter(|by| **by > 0).count(), changes.iter().filter(|by| **by < 0).count());
        let moved = changes.iter().any(|by| *by > 0) && changes.iter().any(|by| *by < 0);
        report.checks.push(Check::holds(
            format!("{}: the agent scaled up and down, within 1 to {MOST} pods", case.name),
            "both",
            got,
            within && moved,
        ));
        let online = (real.rates.len() - real.training) as f64 / PERIOD as f64;
        let least = (SAVED * online).floor().max(1.0);
        report.checks.push(Check::at_least(
            format!("{}: versions of the table that the agent learned and saved", case.name),
            least,
            case.saved as f64,
            "",
        ));
    }
    report.statements.push(Check::holds(
        "the paper: a real pass (b) costs less than a simulated one (c)",
        "11.2 % less",
        if saving > 0.0 { format!("{saving:.1} % less") } else { format!("{:.1} % more", -saving) },
        saving > 0.0,
    ));
    report
}

fn outcomes(real: &Real) -> Table {
    let heads = ["case", "what", "cost [pod-s]", "pods [pod-s]", "expired [requests]", "served in time [%]"];
    let mut table = Table::new("real-outcomes", heads);
    for (case, what) in real.cases.iter().zip(["one pass in the cluster", "one pass in the simulator"]) {
        let served = 100.0 * f64::from(case.served) / f64::from(case.arrived);
        let cells = [format!("{:.0}", case.cost()), format!("{:.0}", case.pod_seconds), case.expired.to_string(), format!("{served:.1}")];
        table.row([case.name.to_owned(), format!("{what}, online in the cluster")].into_iter().chain(cells));
    }
    let simulated = |of: fn(&Totals) -> f64| {
        let interval = Interval::of(&real.simulated.iter().map(of).collect::<Vec<_>>());
        (interval.mean, interval.half())
    };
    let spread = |of: fn(&Totals) -> f64| {
        let (mean, half) = simulated(of);
        format!("{mean:.0} ± {half:.0}")
    };
    let (served, half) = simulated(|totals| 100.0 * totals.served / totals.arrived);
    table.row([
        "b, c".to_owned(),
        format!("the same in the simulator, {} seeds", real.simulated.len()),
        spread(|totals| totals.cost(PENALTY)),
        spread(|totals| totals.pod_seconds),
        spread(|totals| totals.expired),
        format!("{served:.1} ± {half:.1}"),
    ]);
    table
}

fn charts(real: &Real) -> Vec<Chart> {
    let online = &real.rates[real.training..];
    let load = online.iter().enumerate().map(|(second, rate)| (second as f64, *rate)).collect();
    let load = Chart::lines("real-load", "Load online", "time [s]", "requests [1/s]").series("load", load);
    let mut pods = Chart::lines("real-pods", "Pods that the agent set", "time [s]", "pods");
    for case in &real.cases {
        // Steps: each number lasts until the next.
        let ends = case.pods.iter().skip(1).map(|(at, _)| *at).chain([online.len() as f64]);
        let steps = case.pods.iter().zip(ends).flat_map(|((at, pods), end)| [(*at, f64::from(*pods)), (end, f64::from(*pods))]);
        pods = pods.series(case.name, steps.collect());
    }
    vec![load, pods]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(change: impl Fn(&mut Real)) -> Report {
        let lived = |name, expired| Lived {
            name,
            arrived: 1_000,
            served: 1_000 - expired,
            expired,
            pod_seconds: 200.0,
            pods: vec![(0.0, 1), (9.0, 2), (60.0, 1)],
            saved: 4,
        };
        let totals = Totals { arrived: 1_000.0, served: 900.0, expired: 100.0, pod_seconds: 210.0, capacity: 2_000.0 };
        let mut real = Real {
            points: vec![(1, 20.0), (4, 80.0)],
            capacity: Capacity { per_pod: 20.0, fixed: 0.0 },
            delay: 2.0,
            decisions: 50,
            training: 50,
            due: 1_000,
            cases: [lived("case-b", 90), lived("case-c", 100)],
            simulated: vec![totals; 2],
            rates: vec![10.0; 150],
        };
        change(&mut real);
        super::report(&real)
    }

    #[test]
    fn good_run_holds_every_check_and_says_what_came_of_the_claim() {
        let report = real(|_| {});
        assert!(report.ok(), "{:?}", report.checks);
        assert_eq!(report.tables[0].rows[0][2..], ["290", "200", "90", "91.0"]);
        assert_eq!((report.statements[0].got.as_str(), report.statements[0].ok), ("3.3 % less", true));
        assert!(report.charts.iter().all(|chart| chart.svg("").unwrap().contains("</svg>")));
    }

    #[test]
    fn each_check_can_fail() {
        let failed = |change: fn(&mut Real)| real(change).checks.iter().filter(|check| !check.ok).count();
        assert_eq!(failed(|real| real.cases[0].served -= 1), 1, "a request is neither answered nor expired");
        assert_eq!(failed(|real| real.due += 1), 1, "a request was not sent");
        assert_eq!(failed(|real| real.decisions = 40), 1);
        assert_eq!(failed(|real| real.cases[1].pods.truncate(2)), 1, "never down");
        assert_eq!(failed(|real| real.cases[1].pods[1].1 = 5), 1, "too many");
        assert_eq!(failed(|real| real.cases[1].saved = 0), 1);
    }

    #[test]
    fn claim_that_is_not_repeated_fails_nothing() {
        let report = real(|real| real.cases[0].expired = 130);
        let statement = &report.statements[0];
        assert_eq!((statement.got.as_str(), statement.ok), ("10.0 % more", false));
    }
}
