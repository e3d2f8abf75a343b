//! Which pods count for a metric: the HPA controller's groups ready, unready, missing and ignored.

use super::{Phase, Pod, ThresholdObservation, ThresholdSpec};

/// The pods grouped for one metric, with the values that count.
pub(super) struct Groups {
    /// Number of pods whose values count.
    pub ready: usize,
    /// Values of the pods that count, by index of the pod.
    pub values: Vec<(usize, i64)>,
    /// Indices of pods that are not ready yet. They are left out of the first average, and count as idle when scaling up.
    pub unready: Vec<usize>,
    /// Indices of pods without a value. They count as fully used when scaling down and as idle when scaling up.
    pub missing: Vec<usize>,
}

/// Groups the pods for a metric that `value` reads. Only CPU considers readiness, which `cpu` selects.
pub(super) fn group(
    pods: &[Pod],
    cpu: bool,
    spec: &ThresholdSpec,
    seen: &ThresholdObservation,
    value: impl Fn(&Pod) -> Option<i64>,
) -> Groups {
    let mut groups = Groups { ready: 0, values: Vec::with_capacity(pods.len()), unready: Vec::new(), missing: Vec::new() };
    for (index, pod) in pods.iter().enumerate() {
        if pod.deleting || pod.phase == Phase::Failed {
            continue;
        }
        if pod.phase == Phase::Pending {
            groups.unready.push(index);
            continue;
        }
        let Some(value) = value(pod) else {
            groups.missing.push(index);
            continue;
        };
        if cpu && unready(pod, spec, seen.at) {
            groups.unready.push(index);
            continue;
        }
        groups.ready += 1;
        groups.values.push((index, value));
    }
    groups
}

/// Whether a pod's CPU must not count yet: it is still starting, or has never been ready since its start.
fn unready(pod: &Pod, spec: &ThresholdSpec, now: f64) -> bool {
    let (Some(ready), Some(start)) = (&pod.ready, pod.start_time) else { return true };
    let since = ready.since.unwrap_or(f64::NEG_INFINITY);
    let not_ready = ready.status == Some(false);
    if start + spec.cpu_initialization_period > now {
        // If neither time is known, the metric may be from before the pod was ready.
        let known = pod.metric_time.is_some() || ready.since.is_some();
        let early = if known { pod.metric_time.unwrap_or(now) < since + pod.metric_window } else { pod.metric_window > 0.0 };
        not_ready || early
    } else {
        not_ready && start + spec.initial_readiness_delay > since
    }
}

/// Number of pods that run and are ready; metrics of objects are multiplied by it.
pub(super) fn running_ready(pods: &[Pod]) -> usize {
    let ready = |pod: &&Pod| pod.phase == Phase::Running && pod.ready.is_some_and(|ready| ready.status == Some(true));
    pods.iter().filter(ready).count()
}
