//! Load over time: requests per second, second by second, read from a CSV or generated.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::Shape;

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
        Self(shape.rates(seconds, &mut ChaCha8Rng::seed_from_u64(seed))).with_peak(peak)
    }
}
