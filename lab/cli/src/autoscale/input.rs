//! Inputs of the simulations: a load, measured capacities, and the options of the simulated workload.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use drover::commands::autoscale::read;
use drover_autoscaling::qlearning::Capacity;
use drover_lab_autoscaling::sim::{Shape, SimSpec, Trace};

/// The load: from a file, or generated.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Load as CSV, may be a .gz: time in the first column, requests per second in the last.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shape", "seconds"])]
    pub trace: Option<PathBuf>,
    /// Generate a load of this shape.
    #[arg(long, value_enum, default_value_t = ShapeArg::Daily)]
    pub shape: ShapeArg,
    /// Seconds of generated load.
    #[arg(long, value_name = "SECONDS", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(60..=1_000_000))]
    pub seconds: u32,
    /// Scale the load so that its highest second has this many requests [default: a file is not scaled; a generated load peaks at the
    /// capacity of --max-pods].
    #[arg(long, value_name = "RATE")]
    pub peak: Option<f64>,
    /// Seed of the generated load, of arrivals and of exploration.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `--shape`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShapeArg {
    /// A day with bursts.
    Daily,
    /// A launch with a long tail.
    Launch,
    /// Little load with rare bursts.
    Idle,
}

impl LoadArgs {
    /// Reads or generates the load.
    ///
    /// # Errors
    /// The file cannot be read or is not such a CSV.
    pub fn load(&self, spec: &SimSpec) -> Result<Trace> {
        let trace = match &self.trace {
            Some(path) => {
                let trace = read_trace(path)?;
                self.peak.map_or_else(|| trace.clone(), |peak| trace.clone().with_peak(peak))
            }
            None => {
                let shape = match self.shape {
                    ShapeArg::Daily => Shape::Daily,
                    ShapeArg::Launch => Shape::Launch,
                    ShapeArg::Idle => Shape::Idle,
                };
                let peak = self.peak.unwrap_or_else(|| spec.capacity.of(spec.max_pods));
                Trace::generate(shape, usize::try_from(self.seconds)?, peak, self.seed)
            }
        };
        Ok(trace)
    }
}

/// The simulated workload.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// Measured capacity as CSV: number of pods in the first column, requests per second of all of them in the last [default: the
    /// paper's curve].
    #[arg(long, value_name = "FILE")]
    pub capacity: Option<PathBuf>,
    /// Seconds after which a waiting request expires.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    pub timeout: f64,
    /// Seconds from the request for a pod until it serves.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub delay: f64,
    /// Length of a simulation step in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.1)]
    pub step: f64,
    /// Minimum number of pods.
    #[arg(long, default_value_t = 1)]
    pub min_pods: i32,
    /// Maximum number of pods.
    #[arg(long, default_value_t = 4)]
    pub max_pods: i32,
    /// Cost of an expired request, in pod-seconds.
    #[arg(long, default_value_t = 0.1)]
    pub penalty: f64,
    /// Seconds between decisions (KPA decides every 2 s).
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=3_600))]
    pub period: u16,
}

impl SimArgs {
    /// The specification of the workload.
    ///
    /// # Errors
    /// The capacity file cannot be read, or an option is out of range.
    pub fn spec(&self) -> Result<SimSpec> {
        let capacity = match &self.capacity {
            Some(path) => {
                let points =
                    points(&read(path)?).with_context(|| format!("{}: not a CSV of pods and requests per second", path.display()))?;
                Capacity::fit(&points).with_context(|| path.display().to_string())?
            }
            None => Capacity::default(),
        };
        let (step, timeout, delay) = (self.step, self.timeout, self.delay);
        let (min_pods, max_pods, penalty) = (self.min_pods, self.max_pods, self.penalty);
        let spec =
            SimSpec { capacity, step, timeout, delay, min_pods, max_pods, initial_pods: min_pods.max(1), penalty, ..SimSpec::default() };
        spec.check()?;
        Ok(spec)
    }
}

/// Reads a load from a CSV file, compressed or not.
///
/// # Errors
/// The file cannot be read or is not such a CSV.
pub fn read_trace(path: &Path) -> Result<Trace> {
    Trace::from_csv(&read(path)?).with_context(|| path.display().to_string())
}

fn points(text: &str) -> Result<Vec<(i32, f64)>> {
    let mut points = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut cells = line.split(',').map(str::trim);
        let (first, last) = (cells.next().unwrap_or_default(), cells.next_back().unwrap_or_default());
        match (first.parse(), last.parse()) {
            (Ok(pods), Ok(rate)) => points.push((pods, rate)),
            _ if index == 0 => {}
            _ => anyhow::bail!("line {}: `{line}`", index + 1),
        }
    }
    Ok(points)
}
