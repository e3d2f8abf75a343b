//! JSON lines: observations as input, decisions as output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::OfflineError;
use crate::limits::LimitsState;
use crate::threshold::{ContainerUse, MetricStep, Phase, Pod, ReadyCondition, ThresholdObservation};
use crate::{DecisionRecord, Reading, Recommendation, ScaleEvent, Seconds, SpecError, Steps};

/// An observation for `kpa`: either the averages, or samples for the windows to average.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct KpaLine {
    /// Time in seconds.
    pub t: Seconds,
    /// Ready pods; null: could not be read.
    #[serde(default)]
    pub ready: Option<i32>,
    /// The metric averaged over the stable window; null: could not be read.
    #[serde(default)]
    pub stable: Option<f64>,
    /// The metric averaged over the panic window; null: could not be read.
    #[serde(default)]
    pub panic: Option<f64>,
    /// Samples since the last line, instead of the two averages.
    #[serde(default)]
    pub samples: Option<Vec<Sample>>,
    /// Whether requests can reach the workload, for this line. Default: as configured.
    #[serde(default)]
    pub reachable: Option<bool>,
}

/// One sample of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Time in seconds.
    pub t: Seconds,
    pub value: f64,
}

/// An observation for `qlearning`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QLearningLine {
    /// Time in seconds.
    pub t: Seconds,
    /// Pods that are set.
    pub pods: i32,
    /// CPU of the application container as a share of its request; null: could not be read.
    #[serde(default)]
    pub cpu: Option<f64>,
    /// Requests that expired since the last line; null: could not be read.
    #[serde(default)]
    pub expired: Option<f64>,
    /// Pod-seconds since the last line; null: could not be read.
    #[serde(default)]
    pub pod_seconds: Option<f64>,
}

/// An observation for `threshold`. Amounts are in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ThresholdLine {
    /// Time in seconds.
    pub t: Seconds,
    /// Replicas that are set.
    pub replicas: i32,
    /// Replicas that exist. Default: `replicas`.
    #[serde(default)]
    pub status_replicas: Option<i32>,
    /// Pods; null: could not be read.
    #[serde(default)]
    pub pods: Option<Vec<PodLine>>,
    /// Metrics of objects and external metrics by name; null: could not be read.
    #[serde(default)]
    pub external: Option<BTreeMap<String, Option<i64>>>,
    /// A proposal to use instead of the metrics, so that only bounds, stabilisation and rates are applied.
    #[serde(default)]
    pub desired: Option<i32>,
    /// Earlier proposals, instead of those of the lines before.
    #[serde(default)]
    pub recommendations: Option<Vec<PastValue>>,
    /// Replicas added earlier, instead of those added by the lines before.
    #[serde(default)]
    pub scale_ups: Option<Vec<PastChange>>,
    /// Replicas removed earlier, instead of those removed by the lines before.
    #[serde(default)]
    pub scale_downs: Option<Vec<PastChange>>,
}

/// An earlier proposal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PastValue {
    /// Replicas proposed.
    pub value: i32,
    /// Age in seconds.
    pub age: Seconds,
}

/// An earlier change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PastChange {
    /// Replicas added or removed.
    pub change: i32,
    /// Age in seconds.
    pub age: Seconds,
}

/// A pod, with its state either as one word or as phase and conditions. Amounts are in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PodLine {
    pub name: String,
    /// The state as one word, instead of phase, condition and times.
    pub state: Option<PodState>,
    pub phase: Option<Phase>,
    /// Condition `Ready`: true, false, or `"True"`, `"False"`, `"Unknown"`; absent: the pod has no such condition.
    pub ready_condition: Option<Value>,
    /// When it started, in seconds.
    pub start_time: Option<Seconds>,
    /// When `Ready` last changed, in seconds.
    pub ready_transition: Option<Seconds>,
    /// When its usage was measured, in seconds. Default: the time of the line.
    pub metric_time: Option<Seconds>,
    /// Seconds over which its usage was measured.
    pub metric_window: Option<Seconds>,
    /// When its deletion was requested, in seconds; absent: it was not.
    pub deletion_time: Option<Seconds>,
    /// Usage by resource; a resource that is not in the map is missing.
    pub usage: Option<BTreeMap<String, i64>>,
    /// Requests by resource, summed over the containers.
    pub requests: Option<BTreeMap<String, i64>>,
    /// Usage and requests of single containers.
    pub containers: Option<BTreeMap<String, ContainerUse>>,
    /// Custom metrics by name.
    pub metrics: Option<BTreeMap<String, i64>>,
}

/// State of a pod as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PodState {
    /// Serves, and has done so for a long time.
    Ready,
    /// Has never been ready since its start.
    Unready,
    /// Has no node or is not started.
    Pending,
    /// Has failed.
    Failed,
    /// Is being deleted.
    Deleting,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LineDecision {
    /// Time in seconds.
    pub t: Seconds,
    /// Replicas wanted; null: nothing can be decided.
    pub want: Option<i32>,
    /// KPA: burst capacity that is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excess_burst_capacity: Option<i32>,
    /// KPA: whether it is in panic mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panic: Option<bool>,
    /// KPA: when the panic began or was last extended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panic_since: Option<Seconds>,
    /// KPA: most pods wanted during this panic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_panic_pods: Option<i32>,
    /// Q-learning: CPU bucket, 0 to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<usize>,
    /// Q-learning: value of removing a pod, no change, and adding a pod; null: not allowed in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q: Option<[Option<f64>; 3]>,
    /// Q-learning: best action by the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub greedy: Option<i32>,
    /// Q-learning: action taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<i32>,
    /// The steps of the calculation.
    pub steps: LineSteps,
    /// Why, as a code.
    pub reason: crate::Reason,
    /// Why, as a sentence.
    pub message: String,
}

/// The steps of the calculation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LineSteps {
    /// Threshold: the result of each metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Vec<MetricStep>>,
    /// KPA: pods by the stable window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_stable: Option<i32>,
    /// KPA: pods by the panic window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_panic: Option<i32>,
    /// KPA: `rawStable` limited by the scaling rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clamped_stable: Option<i32>,
    /// KPA: `rawPanic` limited by the scaling rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clamped_panic: Option<i32>,
    /// KPA: pods before the scale-down delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undelayed: Option<i32>,
    /// Q-learning: cost of the period that ended, in pod-seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Q-learning: the guard that overruled the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// The policy's proposal.
    pub raw: Option<i32>,
    /// After the stabilisation windows.
    pub stabilized: Option<i32>,
    /// After the rates.
    pub rate_limited: Option<i32>,
    /// After the bounds.
    pub bounded: Option<i32>,
}

impl ThresholdLine {
    /// Replaces the history in `state` by what this line contains.
    pub(super) fn history(&self, state: &mut LimitsState) {
        let events = |past: &Vec<PastChange>| past.iter().map(|past| ScaleEvent { at: self.t - past.age, change: past.change }).collect();
        if let Some(past) = &self.recommendations {
            state.recommendations = Some(past.iter().map(|past| Recommendation { at: self.t - past.age, value: past.value }).collect());
        }
        if let Some(past) = &self.scale_ups {
            state.scale_ups = events(past);
        }
        if let Some(past) = &self.scale_downs {
            state.scale_downs = events(past);
        }
    }

    pub(super) fn observation(self) -> Result<ThresholdObservation, OfflineError> {
        let now = self.t;
        let pods = self.pods.map(|pods| pods.into_iter().map(|pod| pod.pod(now)).collect::<Result<Vec<_>, _>>()).transpose()?;
        let external = self.external.unwrap_or_default();
        Ok(ThresholdObservation {
            at: now,
            replicas: self.replicas,
            status_replicas: self.status_replicas,
            pods: Reading::from(pods),
            external: external.into_iter().map(|(name, value)| (name, Reading::from(value))).collect(),
        })
    }
}

impl PodLine {
    fn pod(self, now: Seconds) -> Result<Pod, OfflineError> {
        let detailed =
            self.phase.is_some() || self.ready_condition.is_some() || self.start_time.is_some() || self.ready_transition.is_some();
        if self.state.is_some() && (detailed || self.deletion_time.is_some()) {
            return Err(SpecError::new("state", format!("pod {}: give either `state`, or `phase` and the conditions", self.name)).into());
        }
        // A one-word state describes a pod that started so long ago that its times do not matter.
        let long_ago = Some(now - 1e9);
        let ready = |status| Some(ReadyCondition { status: Some(status), since: long_ago });
        let mut pod = Pod {
            name: self.name,
            metric_time: self.metric_time,
            metric_window: self.metric_window.unwrap_or(0.0),
            usage: self.usage.unwrap_or_default(),
            requests: self.requests.unwrap_or_default(),
            containers: self.containers.unwrap_or_default(),
            metrics: self.metrics.unwrap_or_default(),
            start_time: long_ago,
            ready: ready(true),
            ..Pod::default()
        };
        match self.state {
            Some(PodState::Ready) => {}
            Some(PodState::Unready) => pod.ready = ready(false),
            Some(PodState::Pending) => (pod.phase, pod.ready) = (Phase::Pending, ready(false)),
            Some(PodState::Failed) => (pod.phase, pod.ready) = (Phase::Failed, ready(false)),
            Some(PodState::Deleting) => pod.deleting = true,
            None if detailed => {
                pod.phase = self.phase.unwrap_or_default();
                pod.start_time = self.start_time;
                pod.ready =
                    condition(&pod.name, self.ready_condition)?.map(|status| ReadyCondition { status, since: self.ready_transition });
                pod.deleting = self.deletion_time.is_some();
            }
            None => pod.deleting = self.deletion_time.is_some(),
        }
        Ok(pod)
    }
}

/// Parses condition `Ready`; the inner none is `Unknown`.
fn condition(pod: &str, written: Option<Value>) -> Result<Option<Option<bool>>, OfflineError> {
    Ok(match written {
        None | Some(Value::Null) => None,
        Some(Value::Bool(status)) => Some(Some(status)),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Some(Some(true)),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Some(Some(false)),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("unknown") => Some(None),
        Some(other) => {
            return Err(SpecError::new("readyCondition", format!("pod {pod}: {other} is not one of True, False and Unknown")).into());
        }
    })
}

impl LineDecision {
    pub(super) fn of(record: &DecisionRecord) -> Self {
        let DecisionRecord { raw, stabilized, rate_limited, bounded, .. } = *record;
        let mut steps = LineSteps { raw, stabilized, rate_limited, bounded, ..LineSteps::default() };
        let mut decision = Self {
            t: record.at,
            want: record.want,
            excess_burst_capacity: None,
            panic: None,
            panic_since: None,
            max_panic_pods: None,
            bucket: None,
            q: None,
            greedy: None,
            action: None,
            steps: LineSteps::default(),
            reason: record.reason,
            message: record.message.clone(),
        };
        match &record.steps {
            Steps::Threshold(own) => {
                steps.metrics = Some(own.metrics.clone());
                // The HPA leaves the replicas unchanged if it cannot decide, and so does this line.
                decision.want = Some(record.want.unwrap_or(record.current));
            }
            Steps::Kpa(own) if raw.is_some() => {
                decision.excess_burst_capacity = Some(own.excess_burst_capacity);
                decision.panic = Some(own.panic_since.is_some());
                decision.panic_since = own.panic_since;
                decision.max_panic_pods = Some(own.max_panic_pods);
                steps.raw_stable = Some(own.raw_stable);
                steps.raw_panic = Some(own.raw_panic);
                steps.clamped_stable = Some(own.clamped_stable);
                steps.clamped_panic = Some(own.clamped_panic);
                steps.undelayed = Some(own.undelayed);
            }
            Steps::QLearning(own) if raw.is_some() => {
                decision.bucket = Some(own.bucket);
                decision.q = Some(own.q);
                decision.greedy = Some(own.greedy);
                decision.action = Some(own.action);
                steps.cost = own.cost;
                steps.guard = own.guard.clone();
            }
            Steps::Kpa(_) | Steps::QLearning(_) => {}
        }
        decision.steps = steps;
        decision
    }
}
