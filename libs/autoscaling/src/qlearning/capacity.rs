//! How many requests pods can serve together. The simulator serves by this curve, and the guards project CPU with it.

use serde::{Deserialize, Serialize};

use crate::SpecError;

/// Requests per second that `x` pods can serve together: `perPod · x + fixed`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Capacity {
    /// Requests per second for each pod.
    pub per_pod: f64,
    /// Requests per second independent of the number of pods.
    pub fixed: f64,
}

impl Default for Capacity {
    /// The curve measured in the paper: AP(x) = 219.1 + 72.0/x per pod.
    fn default() -> Self {
        Self { per_pod: 219.1, fixed: 72.0 }
    }
}

impl Capacity {
    /// Requests per second that `pods` pods serve together.
    pub fn of(&self, pods: i32) -> f64 {
        if pods <= 0 { 0.0 } else { (self.per_pod * f64::from(pods) + self.fixed).max(0.0) }
    }

    /// Fits the curve to measured points (pods, requests per second of all pods together) by least squares.
    ///
    /// # Errors
    /// If a point is not positive and finite, there are fewer than two different numbers of pods, or the fitted curve falls.
    pub fn fit(points: &[(i32, f64)]) -> Result<Self, FitError> {
        if points.iter().any(|&(pods, rate)| pods < 1 || !(rate > 0.0 && rate.is_finite())) {
            return Err(FitError("each point needs 1 pod or more, and more than 0 requests per second"));
        }
        let n = points.iter().fold(0.0, |n, _| n + 1.0);
        let mean = |of: fn(&(i32, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (pods, rate) = (mean(|point| f64::from(point.0)), mean(|point| point.1));
        let spread = points.iter().map(|&(x, _)| (f64::from(x) - pods).powi(2)).sum::<f64>();
        if points.len() < 2 || spread == 0.0 {
            return Err(FitError("at least two different numbers of pods are needed"));
        }
        let per_pod = points.iter().map(|&(x, y)| (f64::from(x) - pods) * (y - rate)).sum::<f64>() / spread;
        let fitted = Self { per_pod, fixed: rate - per_pod * pods };
        fitted.check().map(|()| fitted).map_err(|_| FitError("the points do not grow with the number of pods"))
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        let usable = self.per_pod.is_finite() && self.fixed.is_finite() && self.per_pod >= 0.0 && self.of(1) > 0.0;
        SpecError::unless(usable, "capacity", "must give one pod more than 0 requests per second, and more pods no less")
    }
}

/// No capacity curve fits the measured points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no capacity curve fits: {0}")]
pub struct FitError(&'static str);

#[cfg(test)]
mod tests {
    use super::Capacity;

    #[test]
    fn default_capacity_is_the_curve_of_the_paper() {
        let curve = Capacity::default();
        for (pods, rate) in [(0, 0.0), (1, 291.1), (2, 510.2), (3, 729.3), (4, 948.4)] {
            assert!((curve.of(pods) - rate).abs() < 1e-9);
        }
    }

    #[test]
    fn fit_recovers_the_curve_from_its_points() {
        let curve = Capacity { per_pod: 120.0, fixed: 15.0 };
        let fitted = Capacity::fit(&[(1, curve.of(1)), (3, curve.of(3)), (2, curve.of(2))]).unwrap();
        assert!((fitted.per_pod - 120.0).abs() < 1e-9 && (fitted.fixed - 15.0).abs() < 1e-9);
        for points in
            [&[][..], &[(1, 100.0)], &[(2, 100.0), (2, 90.0)], &[(0, 1.0), (1, 2.0)], &[(1, 200.0), (2, 10.0)], &[(1, f64::NAN), (2, 1.0)]]
        {
            assert!(Capacity::fit(points).is_err(), "{points:?}");
        }
    }
}
