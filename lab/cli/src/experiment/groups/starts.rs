//! The learned placement as a start for `cgs-search`, beside that of `cgs-greedy`. Times are CPU seconds of this thread.

use std::sync::Arc;

use drover_lab_groups::experiment::BenchmarkCase;
use drover_lab_groups::{Greedy, Instance, Placed, Policy, Search, SearchBudget, Weights};
use drover_report::{Check, Table};

use super::learned::median;
use super::{Collected, cpu};

/// Seconds of search, the time of the start included, and seeds of each.
const TIMES: [(f64, u64); 5] = [(0.02, 7), (0.05, 7), (0.1, 7), (0.3, 7), (1.0, 3)];
/// The time on which the default rests: from here on the learned start must not be behind.
const DEFAULT: f64 = 0.1;

fn search(seed: u64, seconds: f64) -> Search {
    Search { seed, budget: SearchBudget::Seconds(seconds, Arc::new(cpu)), grouped: true }
}

/// The aim was to have from the learned start after 1 ms what the greedy one gives after 10 ms. The search from greedy begins hot, which is
/// better for it; the one from the learned start as its budget allows.
pub fn aim(name: &str, instance: &Instance, (learned, took): (&Placed, f64), greedy: &Placed, seed: u64, collected: &mut Collected) {
    let weights = Weights::default();
    let over_seeds = |one: &dyn Fn(u64) -> Placed| median(&(seed..seed + 9).map(|seed| one(seed).value).collect::<Vec<_>>());
    let from_learned = over_seeds(&|seed| search(seed, 0.001).polish(instance, &weights, learned));
    let from_greedy = over_seeds(&|seed| search(seed, 0.01).reheat(instance, &weights, greedy));
    let verdict = if from_learned <= from_greedy { "the aim holds" } else { "the aim does not hold" };
    collected.report.findings.push(format!(
        "{name}: cgs-search from the learned start has {from_learned:.5} after 1 ms, from greedy {from_greedy:.5} after 10 ms: {verdict} \
         (medians of 9 seeds; the time of the starts is not counted, that of the learned one is {:.1} ms)",
        took * 1e3
    ));
}

/// The search from greedy, and as it starts by default on many places, after the same time, that of the starts included.
pub fn compare(cases: &[BenchmarkCase], seed: u64, collected: &mut Collected) {
    let weights = Weights::default();
    let mut table = Table::new("starts", ["case", "seconds in all", "seeds", "from cgs-greedy", "from learned"]);
    for case in cases {
        for (seconds, seeds) in TIMES {
            collected.say(format!("{}: starts after {seconds} s", case.name));
            let instance = &case.instance;
            let of_seeds = |one: &dyn Fn(u64) -> f64| median(&(seed..seed + seeds).map(one).collect::<Vec<_>>());
            let greedy = of_seeds(&|seed| {
                let began = cpu();
                let start = Greedy::Groups.place(instance, &weights);
                search(seed, (seconds - (cpu() - began)).max(0.0)).reheat(instance, &weights, &start).value
            });
            let learned = of_seeds(&|seed| search(seed, seconds).place(instance, &weights).value);
            table.row([case.name.to_owned(), seconds.to_string(), seeds.to_string(), format!("{greedy:.4}"), format!("{learned:.4}")]);
            if seconds == DEFAULT {
                collected.report.checks.push(Check::holds(
                    format!(
                        "{}: cgs-search from its learned start is not behind that from greedy after {DEFAULT} s, starts included",
                        case.name
                    ),
                    "at most greedy's",
                    format!("{learned:.4} against {greedy:.4}"),
                    learned <= greedy,
                ));
            }
        }
    }
    if !table.rows.is_empty() {
        collected.report.tables.push(table);
    }
}
