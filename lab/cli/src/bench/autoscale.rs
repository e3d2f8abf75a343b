//! Speed of the autoscaler's pure core on one CPU core: KPA decisions per second, and a training.
//!
//! Times are CPU time of this thread, so that other programs on the machine do not count.

use std::hint::black_box;

use anyhow::{Result, ensure};
use drover_autoscaling::kpa::{KpaObservation, KpaSpec};
use drover_autoscaling::offline::{Config, Decider};
use drover_autoscaling::qlearning::QLearningSpec;
use drover_autoscaling::{Limits, Observation, Policy, Reading, ScalingState, decide};
use drover_lab_autoscaling::sim::{Arrivals, Schedule, Shape, SimSpec, Trace, train};
use drover_report::{Check, Report, Table};

use super::{Size, cell};

const PASSES: usize = 20;
const SECONDS: usize = 5_000;

/// Measures decisions and training.
///
/// # Errors
/// A decision cannot be written as JSON.
pub fn run(size: Size, report: &mut Report) -> Result<()> {
    let count = size.of(1_000_000, 1_000);
    let mut table = Table::new("autoscale", ["what", "how many", "took [core s]", "a second and core"]);
    let mut row = |what: &str, many: u32, took: f64| {
        table.row([what.to_owned(), many.to_string(), cell(took), format!("{:.0}", f64::from(many) / took)]);
        f64::from(many) / took
    };

    let averaged = row("KPA, averaged observations", count, decisions(count));
    let lines = row("KPA, averaged observations as JSON lines", count, json(count)?);
    let took = training();
    row(&format!("passes over {SECONDS} s of simulated time"), u32::try_from(PASSES)?, took);
    report.tables.push(table);
    report.checks.push(Check::at_least("averaged KPA observations a second and core", 100_000.0, averaged, "1/s"));
    report.checks.push(Check::at_least("the same as JSON lines", 100_000.0, lines, "1/s"));
    report.checks.push(Check::at_most(format!("{PASSES} training passes over {SECONDS} s"), 2.0, took, "s"));
    Ok(())
}

/// CPU time of this thread in seconds; elapsed time where the kernel does not provide it.
fn on_core() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| jiff::Timestamp::now().as_nanosecond() as f64 / 1e9, |nanoseconds| nanoseconds / 1e9)
}

/// Stable and panic load of a decision. It varies from that of one pod to that of hundreds, and enters and leaves panic mode.
fn load(index: u32) -> (f64, f64) {
    let wave = f64::from(index % 997);
    (wave, f64::from(index % 89) * 20.0)
}

fn decisions(count: u32) -> f64 {
    let policy = Policy::Kpa(KpaSpec { scale_down_delay: 30.0, ..KpaSpec::default() });
    let limits = Limits { min_replicas: 0, max_replicas: 1_000, ..Limits::default() };
    let mut state = ScalingState::new(&policy, &limits, 0.0, 1);
    let mut ready = 1;
    let began = on_core();
    for index in 0..count {
        let (stable, panic) = load(index);
        let (ready_now, at) = (Reading::Value(ready), 2.0 * f64::from(index));
        let seen = KpaObservation { at, replicas: ready, ready: ready_now, stable: Reading::Value(stable), panic: Reading::Value(panic) };
        let (record, next) = decide(&policy, &limits, state, &Observation::Kpa(seen));
        ready = record.want.unwrap_or(ready);
        state = next;
        black_box(&record);
    }
    on_core() - began
}

fn json(count: u32) -> Result<f64> {
    let config: Config = serde_json::from_str(r#"{"policy":"kpa"}"#)?;
    let mut decider = Decider::new(&config, None)?;
    let lines: Vec<String> = (0..count)
        .map(|index| {
            let (stable, panic) = load(index);
            format!(r#"{{"t":{},"ready":{},"stable":{stable},"panic":{panic}}}"#, 2 * index, index % 50)
        })
        .collect();
    let began = on_core();
    for line in &lines {
        let decision = serde_json::to_string(&decider.line(line)?)?;
        ensure!(!black_box(decision).is_empty());
    }
    Ok(on_core() - began)
}

fn training() -> f64 {
    let spec = SimSpec::default();
    let load = Trace::generate(Shape::Launch, SECONDS, spec.capacity.of(spec.max_pods), 1);
    let began = on_core();
    let pass = Arrivals::even(&load, &spec, 0, SECONDS);
    black_box(train(&QLearningSpec::default(), &spec, &Schedule::default(), 15, std::iter::repeat_n(&pass, PASSES)));
    on_core() - began
}
