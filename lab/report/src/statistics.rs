//! The two numbers that a report may need of its samples.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean with its 95 % confidence interval (Student's t, n − 1 degrees of freedom).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Mean of the samples.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Of independent samples. One sample has no width, none is all NaN.
    pub fn of(samples: &[f64]) -> Self {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let half = match StudentsT::new(0.0, 1.0, n - 1.0) {
            Ok(student) if samples.len() > 1 => {
                let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (n - 1.0);
                student.inverse_cdf(0.975) * (variance / n).sqrt()
            }
            _ => 0.0,
        };
        Interval { mean, low: mean - half, high: mean + half }
    }

    /// True when this lies wholly below the other.
    pub fn below(&self, other: &Interval) -> bool {
        self.high < other.low
    }

    /// Half its width.
    pub fn half(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ± {}", crate::table::number(self.mean), crate::table::number(self.half()))
    }
}

/// The smallest sample that at least the share `p` (0 to 1) of them does not exceed (nearest rank); NaN of none.
pub fn percentile(samples: &[f64], p: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (p * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // t(0.975, 4) = 2.776445; the samples' standard deviation is sqrt(2.5).
        let interval = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((interval.mean - 3.0).abs() < 1e-12);
        assert!((interval.half() - 2.776_445 * (2.5_f64 / 5.0).sqrt()).abs() < 1e-4, "{interval}");
        assert!(Interval::of(&[1.0, 1.1]).below(&Interval::of(&[90.0, 90.1])));
        assert_eq!(Interval::of(&[7.0]).half(), 0.0);
        assert!(Interval::of(&[]).mean.is_nan());
    }

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.9, 0.99, 1.0].map(|p| percentile(&samples, p)), [1.0, 50.0, 90.0, 99.0, 100.0]);
        assert!(percentile(&[], 0.5).is_nan());
    }
}
