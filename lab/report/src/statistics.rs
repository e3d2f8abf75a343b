//! The statistics that a report needs: confidence intervals and percentiles.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean with its 95 % confidence interval (Student's t distribution, n − 1 degrees of freedom).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// The interval of independent samples. One sample gives an interval of width zero, no sample gives NaN.
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

    /// Whether this interval lies completely below the other.
    pub fn below(&self, other: &Interval) -> bool {
        self.high < other.low
    }

    /// Half the width of the interval.
    pub fn half(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ± {}", crate::table::number(self.mean), crate::table::number(self.half()))
    }
}

/// How much `y` grows with each `x`, by least squares, with its 95 % confidence interval (Student's t distribution, n − 2 degrees of freedom).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Slope {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Slope {
    /// The slope of independent points. Two points give an interval of width zero; points with one `x` give NaN.
    pub fn of(points: &[(f64, f64)]) -> Self {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
        let half = match StudentsT::new(0.0, 1.0, n - 2.0) {
            Ok(student) if points.len() > 2 => {
                let residuals: f64 = points.iter().map(|point| (point.1 - y - slope * (point.0 - x)).powi(2)).sum();
                student.inverse_cdf(0.975) * (residuals / (n - 2.0) / spread).sqrt()
            }
            _ => 0.0,
        };
        Self { mean: slope, low: slope - half, high: slope + half }
    }
}

/// The percentile by nearest rank: the smallest sample that is not exceeded by at least the share `p` (0 to 1) of the samples; NaN
/// without samples.
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
    fn interval_uses_students_t_distribution() {
        // t(0.975, 4) = 2.776445; the samples' standard deviation is sqrt(2.5).
        let interval = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((interval.mean - 3.0).abs() < 1e-12);
        assert!((interval.half() - 2.776_445 * (2.5_f64 / 5.0).sqrt()).abs() < 1e-4, "{interval}");
        assert!(Interval::of(&[1.0, 1.1]).below(&Interval::of(&[90.0, 90.1])));
        assert_eq!(Interval::of(&[7.0]).half(), 0.0);
        assert!(Interval::of(&[]).mean.is_nan());
    }

    #[test]
    fn slope_uses_students_t_distribution() {
        // Residuals of 0.1, -0.2, 0.1 about 1 + 2 x; t(0.975, 1) = 12.7062.
        let slope = Slope::of(&[(0.0, 1.1), (1.0, 2.8), (2.0, 5.1)]);
        assert!((slope.mean - 2.0).abs() < 1e-12);
        assert!(((slope.high - slope.low) / 2.0 - 12.7062 * (0.06_f64 / 2.0).sqrt()).abs() < 1e-3, "{slope:?}");
        assert!(Slope::of(&[(1.0, 1.0), (1.0, 2.0)]).mean.is_nan());
    }

    #[test]
    fn percentile_returns_samples() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.9, 0.99, 1.0].map(|p| percentile(&samples, p)), [1.0, 50.0, 90.0, 99.0, 100.0]);
        assert!(percentile(&[], 0.5).is_nan());
    }
}
