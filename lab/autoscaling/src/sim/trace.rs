//! Load over time: requests per second, second by second, read from a CSV or generated.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal};

/// Requests per second, one value per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace(Vec<f64>);

/// The CSV is not a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}; a trace is a CSV with the time in the first column and requests per second in the last")]
pub struct TraceError {
    line: usize,
    problem: String,
}

/// Shapes of generated load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One day over the whole length, with bursts on top.
    Daily,
    /// A ramp up to a launch and a long decline: several pods most of the time.
    Launch,
    /// Low load with rare bursts: one pod most of the time.
    Idle,
}

impl Trace {
    /// A trace of these rates, one per second; invalid ones count as 0.
    pub fn new(rates: Vec<f64>) -> Self {
        Self(rates.into_iter().map(|rate| if rate.is_finite() { rate.max(0.0) } else { 0.0 }).collect())
    }

    /// Requests per second, one value per second.
    pub fn rates(&self) -> &[f64] {
        &self.0
    }

    /// The same load, scaled so that its largest second is `peak`.
    pub fn with_peak(self, peak: f64) -> Self {
        let highest = self.0.iter().copied().fold(0.0, f64::max);
        if highest > 0.0 { Self(self.0.iter().map(|rate| rate * peak / highest).collect()) } else { self }
    }

    /// Parses a CSV; a first line without numbers is skipped as a header.
    ///
    /// # Errors
    /// If a line lacks a time and a rate of 0 or more, or there is no rate at all.
    pub fn from_csv(text: &str) -> Result<Self, TraceError> {
        let mut rates = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let fail = |problem: String| TraceError { line: index + 1, problem };
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let (Some(first), Some(last)) = (line.split(',').next(), line.rsplit(',').next()) else { continue };
            match (first.trim().parse::<f64>(), last.trim().parse::<f64>()) {
                (Ok(_), Ok(rate)) if rate.is_finite() && rate >= 0.0 && line.contains(',') => rates.push(rate),
                (Err(_), Err(_)) if rates.is_empty() => {}
                _ => return Err(fail(format!("`{line}` does not have a time and a rate of 0 or more"))),
            }
        }
        if rates.is_empty() { Err(TraceError { line: 1, problem: "there is no load".to_owned() }) } else { Ok(Self(rates)) }
    }

    /// A generated trace whose largest second is `peak`; the same seed gives the same trace.
    pub fn generate(shape: Shape, seconds: usize, peak: f64, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let length = seconds.max(1) as f64;
        // Number and height of bursts, how long they last (as a share of the whole), and variation between seconds.
        let (bursts, height, fading, jitter) = match shape {
            Shape::Daily => (8, 0.35, 0.006, 0.08),
            Shape::Launch => (6, 0.30, 0.003, 0.02),
            Shape::Idle => (6, 0.85, 0.004, 0.25),
        };
        let bursts: Vec<(f64, f64, f64)> = (0..bursts)
            .map(|_| {
                (rng.random::<f64>() * length, height * (0.5 + 0.5 * rng.random::<f64>()), length * fading * (0.5 + rng.random::<f64>()))
            })
            .collect();
        let normal = Normal::new(0.0, 1.0).ok();
        let mut chance = || normal.map_or(0.0, |normal| normal.sample(&mut rng));
        let mut drift = 0.0;
        let rates = (0..seconds).map(|second| {
            let at = second as f64;
            let base = base(shape, at / length);
            let burst: f64 = bursts.iter().map(|&(start, height, decay)| burst(at - start, height, decay)).sum();
            // A slow random walk with a memory of about a minute, as in load caused by many people.
            drift = drift * (1.0 - 1.0 / 60.0) + 0.01 * chance();
            ((base + burst) * (1.0 + drift + jitter * chance())).max(0.0)
        });
        Self(rates.collect()).with_peak(peak)
    }
}

/// The curve without bursts, over a share of the whole length.
fn base(shape: Shape, share: f64) -> f64 {
    let wave = |phase: f64| 0.5 - 0.5 * (std::f64::consts::TAU * (share + phase)).cos();
    match shape {
        Shape::Daily => 0.25 + 0.6 * wave(0.0) + 0.1 * wave(0.3) * wave(0.0),
        Shape::Launch => 0.42 - 0.12 * share + 0.36 * (-((share - 0.25) / 0.11).powi(2)).exp() + 0.04 * wave(7.0 * share),
        Shape::Idle => 0.09 + 0.06 * wave(0.1) + 0.02 * wave(9.0 * share),
    }
}

/// A burst: it rises within a tenth of its decay time, then falls exponentially.
fn burst(since: f64, height: f64, decay: f64) -> f64 {
    if since < 0.0 { 0.0 } else { height * (since / (0.1 * decay)).min(1.0) * (-since / decay).exp() }
}
