//! The replicas that one metric proposes: the HPA's replica calculator with its integer arithmetic.
//!
//! Missing values are assumed so that the change becomes smaller: full usage when scaling down, none when scaling up.

use std::cmp::Ordering;

use super::metric::{Metric, Target};
use super::pods::{Groups, group, running_ready};
use super::{MetricStep, Pod, ThresholdObservation, ThresholdSpec};
use crate::Reading;
use crate::limits::clamp;

/// How far a ratio may be from 1 before the workload is scaled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    pub up: f64,
    pub down: f64,
}

impl Tolerance {
    fn covers(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// The input of all proposals.
#[derive(Clone, Copy)]
pub(super) struct Calculator<'a> {
    pub spec: &'a ThresholdSpec,
    pub seen: &'a ThresholdObservation,
    pub tolerance: Tolerance,
}

type Proposal = Result<MetricStep, String>;

impl Calculator<'_> {
    /// The proposal of a metric, or why it has none.
    pub fn propose(&self, metric: &Metric<'_>) -> Proposal {
        match *metric {
            Metric::Resource { name, container, target: Target::Utilization(target) } => self.utilization(name, container, target),
            Metric::Resource { name, container, target: Target::Average(target) | Target::Whole(target) } => {
                self.average(name, name == "cpu", target, |pod| usage(pod, name, container))
            }
            Metric::Pods { name, target } => self.average(name, false, target, |pod| pod.metrics.get(name).copied()),
            Metric::Object { name, target } | Metric::External { name, target } => self.total(name, target),
        }
    }

    fn pods(&self) -> Result<&[Pod], String> {
        match self.seen.pods.fresh() {
            Some(pods) if pods.is_empty() => Err("the selector matches no pods".to_owned()),
            Some(pods) => Ok(pods),
            None => Err(format!("pods: {}", self.seen.pods.trouble().unwrap_or_default())),
        }
    }

    /// Proposal by per cent of the pods' requests.
    fn utilization(&self, name: &str, container: Option<&str>, target: i32) -> Proposal {
        let pods = self.pods()?;
        let mut groups = group(pods, name == "cpu", self.spec, self.seen, |pod| usage(pod, name, container));
        let requests = pods.iter().map(|pod| request(pod, name, container)).collect::<Result<Vec<_>, _>>()?;
        let share = |values: &[(usize, i64)]| {
            let used = sum(values.iter().map(|&(_, value)| value));
            let asked = sum(values.iter().map(|&(pod, _)| requests[pod]));
            if asked == 0 {
                return Err(format!("no {name} is requested by the pods that have metrics"));
            }
            let percent = i32::try_from(i128::from(used) * 100 / i128::from(asked)).unwrap_or(i32::MAX);
            Ok((f64::from(percent) / f64::from(target), percent, used / as_i64(values.len())))
        };
        if groups.values.is_empty() {
            return Err(format!("no {name} metrics of any ready pod"));
        }
        let (ratio, percent, average) = share(&groups.values)?;
        let full = i64::from(target.max(100));
        let missing = |pod: usize| match ratio.total_cmp(&1.0) {
            Ordering::Less => Some(requests[pod].saturating_mul(full) / 100),
            Ordering::Equal => None,
            Ordering::Greater => Some(0),
        };
        let proposal = self.rebalance(ratio, &mut groups, missing, |values| Ok(share(values)?.0))?;
        Ok(step(name, i64::from(percent), Some(average), proposal))
    }

    /// Proposal by an average per pod.
    fn average(&self, name: &str, cpu: bool, target: i64, value: impl Fn(&Pod) -> Option<i64>) -> Proposal {
        let pods = self.pods()?;
        let mut groups = group(pods, cpu, self.spec, self.seen, value);
        let mean = |values: &[(usize, i64)]| sum(values.iter().map(|&(_, value)| value)) / as_i64(values.len());
        if groups.values.is_empty() {
            return Err(format!("no {name} metrics of any ready pod"));
        }
        let average = mean(&groups.values);
        let against = |average: i64| average as f64 / target as f64;
        let ratio = against(average);
        // Exactly at the target, missing pods count as idle here but are left out of a utilisation; the HPA controller does the same.
        let missing = Some(if ratio < 1.0 { target } else { 0 });
        let proposal = self.rebalance(ratio, &mut groups, |_| missing, |values| Ok(against(mean(values))))?;
        Ok(step(name, average, None, proposal))
    }

    /// Proposal by a metric that does not belong to the pods.
    fn total(&self, name: &str, target: Target) -> Proposal {
        let value = match self.seen.external.get(name) {
            Some(Reading::Value(value)) => *value,
            Some(reading) => return Err(format!("{name}: {}", reading.trouble().unwrap_or_default())),
            None => return Err(format!("{name}: absent: it was not read")),
        };
        match target {
            Target::Average(target) => {
                let existing = self.seen.status_replicas();
                let ratio = value as f64 / (target as f64 * f64::from(existing));
                let proposal = if self.tolerance.covers(ratio) { existing } else { clamp((value as f64 / target as f64).ceil()) };
                let each = (value as f64 / f64::from(existing.max(1))).ceil();
                Ok(step(name, i64::from(clamp(each)), None, proposal))
            }
            Target::Whole(target) => {
                let ratio = value as f64 / target as f64;
                // At zero replicas there are no pods to multiply by, and the tolerance does not apply.
                if self.seen.replicas == 0 {
                    return Ok(step(name, value, None, clamp(ratio.ceil())));
                }
                if self.tolerance.covers(ratio) {
                    return Ok(step(name, value, None, self.seen.replicas));
                }
                let ready = running_ready(self.pods()?);
                Ok(step(name, value, None, clamp((ratio * count(ready)).ceil())))
            }
            Target::Utilization(_) => Err(format!("{name}: a utilisation target needs a metric of pods")),
        }
    }

    /// Replicas by a first ratio, corrected for pods that are not ready and for missing pods, for which `missing` gives the assumed value.
    fn rebalance(
        &self,
        ratio: f64,
        groups: &mut Groups,
        missing: impl Fn(usize) -> Option<i64>,
        again: impl Fn(&[(usize, i64)]) -> Result<f64, String>,
    ) -> Result<i32, String> {
        let current = self.seen.replicas;
        let idle = if ratio > 1.0 { groups.unready.as_slice() } else { &[] };
        if idle.is_empty() && groups.missing.is_empty() {
            return Ok(if self.tolerance.covers(ratio) { current } else { clamp((ratio * count(groups.ready)).ceil()) });
        }
        groups.values.extend(groups.missing.iter().filter_map(|&pod| Some((pod, missing(pod)?))));
        groups.values.extend(idle.iter().map(|&pod| (pod, 0)));
        let corrected = again(&groups.values)?;
        let turned = (ratio < 1.0 && corrected > 1.0) || (ratio > 1.0 && corrected < 1.0);
        if self.tolerance.covers(corrected) || turned {
            return Ok(current);
        }
        let proposal = clamp((corrected * count(groups.values.len())).ceil());
        let contradicts = (corrected < 1.0 && proposal > current) || (corrected > 1.0 && proposal < current);
        Ok(if contradicts { current } else { proposal })
    }
}

/// A pod's usage of a resource, of the whole pod or of one container.
fn usage(pod: &Pod, resource: &str, container: Option<&str>) -> Option<i64> {
    let values = match container {
        Some(name) => &pod.containers.get(name)?.usage,
        None => &pod.usage,
    };
    values.get(resource).copied()
}

/// A pod's request of a resource, of the whole pod or of one container.
fn request(pod: &Pod, resource: &str, container: Option<&str>) -> Result<i64, String> {
    let values = match container {
        Some(name) => &pod.containers.get(name).ok_or_else(|| format!("pod {} has no container {name}", pod.name))?.requests,
        None => &pod.requests,
    };
    values.get(resource).copied().ok_or_else(|| format!("a container of pod {} requests no {resource}", pod.name))
}

fn sum(values: impl Iterator<Item = i64>) -> i64 {
    values.fold(0, i64::saturating_add)
}

fn count(pods: usize) -> f64 {
    pods as f64
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn step(name: &str, utilization: i64, average: Option<i64>, proposal: i32) -> MetricStep {
    MetricStep { name: name.to_owned(), utilization: Some(utilization), average, proposal: Some(proposal), error: None }
}
