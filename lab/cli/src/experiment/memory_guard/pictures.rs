//! The results as charts: restarts, workflow time, execution and waiting over the oversubscription, and the paper's figure 5.

use drover_lab_memguard::experiment::{SIZES, Sample};
use drover_lab_memguard::simulate::Outcome;
use drover_report::Chart;

use super::plan::Results;

const PERCENT: &str = "oversubscription [%]";

/// All charts.
pub fn all(results: &Results) -> Vec<Chart> {
    let mut charts = Vec::new();
    for size in SIZES {
        let mut add = |what: &str, title: &str, unit: &str, measure: fn(&Sample) -> f64| {
            charts.push(over_percent(results, size, &format!("{what}-{size}gb"), &format!("{title}, {size} GB jobs"), unit, measure));
        };
        add("restarts", "Restarts per container", "restarts", Sample::restarts);
        add("workflow", "Workflow time", "time [s]", Sample::workflow);
        add("execution", "Mean execution, with backoff and pauses", "time [s]", |sample| {
            sample.mean(|outcome: &Outcome| outcome.execution)
        });
        add("waiting", "Mean wait of those that wait", "time [s]", |sample| sample.mean(|outcome: &Outcome| outcome.wait));
    }
    charts.push(under_quotas(results));
    charts
}

fn over_percent(results: &Results, size: u32, name: &str, title: &str, unit: &str, measure: fn(&Sample) -> f64) -> Chart {
    let of_size: Vec<_> =
        results.settings.iter().filter(|compared| compared.setting.is_some_and(|(gigabytes, _)| gigabytes == size)).collect();
    let arms = of_size.first().map(|compared| compared.samples.iter().map(|(arm, _)| *arm).collect::<Vec<_>>()).unwrap_or_default();
    let none = of_size.iter().map(|compared| measure(compared.none())).fold(0.0, f64::max);
    let mut chart = Chart::lines(name, title, PERCENT, unit);
    for arm in arms {
        let points = of_size.iter().filter_map(|compared| {
            let (_, percent) = compared.setting?;
            let value = measure(compared.arm(arm)?);
            // A livelock would squeeze everything else onto the axis; the tables have its number.
            (value <= 2.0 * none.max(f64::MIN_POSITIVE)).then_some((f64::from(percent), value))
        });
        chart = chart.series(arm, points.collect());
    }
    chart
}

fn under_quotas(results: &Results) -> Chart {
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
    let points = results.quotas.iter().filter_map(|(quota, times)| quota.map(|quota| (quota, mean(times))));
    let free = results.quotas.first().map_or(f64::NAN, |(_, times)| mean(times));
    let ends = results.quotas.iter().filter_map(|(quota, _)| quota.map(|quota| (quota, free)));
    Chart::lines("run-time-under-a-pause", "Run time of a 4 GB job that is paused all its life (figure 5)", "CPU quota [m]", "run time [s]")
        .series("under the quota", points.clone().collect())
        .series("without a quota", ends.collect())
}
