//! Small sums around the request path: how many pods to sample, how many activators to use, whose pods are whose.

/// Fewest activators.
const FEWEST_ACTIVATORS: f64 = 2.0;
/// z² σ² / MOE² for 95 % confidence, a variance of 100 and a margin of 5.
const SAMPLES: f64 = 15.3664;

/// Pods to sample so that the mean is known well enough (Knative `metrics/sample_size.go`).
pub fn sample_size(population: f64) -> f64 {
    if population <= 3.0 { population.ceil().max(0.0) } else { (population * SAMPLES / (population - 1.0 + SAMPLES)).ceil() }
}

/// Activators that a workload needs: for what its pods can take and the burst on top.
pub fn activators(ready: f64, total: f64, target_burst_capacity: f64, activator_capacity: f64) -> f64 {
    if target_burst_capacity == 0.0 {
        return FEWEST_ACTIVATORS;
    }
    ((ready * total + target_burst_capacity.max(0.0)) / activator_capacity).ceil().max(FEWEST_ACTIVATORS)
}

/// Pods of one activator: from `begin` to before `end`; and how many pods at the end are shared one each by the first activators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// First pod.
    pub begin: usize,
    /// Pod after the last.
    pub end: usize,
    /// Pods left over.
    pub remnants: usize,
}

/// Deals `pods` out to `activators`; this is the one at `index`.
pub fn share(pods: usize, activators: usize, index: usize) -> Share {
    if pods == 0 || activators == 0 {
        return Share { begin: 0, end: 0, remnants: 0 };
    }
    if pods < activators {
        let begin = index % pods;
        return Share { begin, end: begin + 1, remnants: 0 };
    }
    let each = pods / activators;
    Share { begin: index * each, end: (index + 1) * each, remnants: pods % activators }
}
