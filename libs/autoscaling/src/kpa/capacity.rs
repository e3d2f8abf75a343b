//! Calculations for the request path: how many pods to sample, how many activators to use, and which pods belong to which activator.

/// Minimum number of activators.
const FEWEST_ACTIVATORS: f64 = 2.0;
/// z² σ² / MOE² for 95 % confidence, a variance of 100 and a margin of error of 5.
const SAMPLES: f64 = 15.3664;

/// Pods out of `population` to sample so that the mean is known with the confidence above (Knative `metrics/sample_size.go`).
pub fn sample_size(population: f64) -> f64 {
    if population <= 3.0 { population.ceil().max(0.0) } else { (population * SAMPLES / (population - 1.0 + SAMPLES)).ceil() }
}

/// Activators that a workload needs for the capacity of its pods and the burst on top (Knative `kpa.go`, `computeNumActivators`).
///
/// `ready` is the number of ready pods, and `total` what one pod can take: concurrent requests or requests per second, in the same unit as
/// `target_burst_capacity` and `activator_capacity`. A burst capacity of 0 keeps activators off the path, so that the fewest suffice; a
/// negative one keeps them on it always and adds no burst.
pub fn activators(ready: f64, total: f64, target_burst_capacity: f64, activator_capacity: f64) -> f64 {
    if target_burst_capacity == 0.0 {
        return FEWEST_ACTIVATORS;
    }
    ((ready * total + target_burst_capacity.max(0.0)) / activator_capacity).ceil().max(FEWEST_ACTIVATORS)
}

/// The pods of one activator: `begin` to `end`, without `end`. The `remnants` at the end of the list are given one each to the first activators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Index of the first pod.
    pub begin: usize,
    /// Index after the last pod.
    pub end: usize,
    /// Pods left over.
    pub remnants: usize,
}

/// Divides `pods` among `activators` and returns the share of the activator at `index` (Knative `throttler.go`, `pickIndices`).
/// If there are fewer pods than activators, several activators share a pod.
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
