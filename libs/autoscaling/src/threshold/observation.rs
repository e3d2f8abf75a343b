//! What the threshold policy is shown: the workload, its pods and the numbers read about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Reading, Seconds};

/// One look at a workload. All amounts are thousandths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThresholdObservation {
    /// When.
    pub at: Seconds,
    /// Replicas asked for (`spec.replicas`).
    pub replicas: i32,
    /// Replicas that exist (`status.replicas`); absent: as many as asked for.
    pub status_replicas: Option<i32>,
    /// The workload's pods, with their metrics.
    pub pods: Reading<Vec<Pod>>,
    /// Metrics of objects and external metrics by name, summed over the series asked for.
    pub external: BTreeMap<String, Reading<i64>>,
}

impl ThresholdObservation {
    /// A workload of which nothing is known but its replicas.
    pub fn without_metrics(at: Seconds, replicas: i32) -> Self {
        Self { at, replicas, status_replicas: None, pods: Reading::Absent("not asked for".to_owned()), external: BTreeMap::new() }
    }
    /// Replicas that exist.
    pub fn status_replicas(&self) -> i32 {
        self.status_replicas.unwrap_or(self.replicas)
    }
}

/// A pod as the HPA sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Name.
    pub name: String,
    /// Phase.
    pub phase: Phase,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// Condition `Ready`; none: it has none yet.
    pub ready: Option<ReadyCondition>,
    /// When the kubelet took it up.
    pub start_time: Option<Seconds>,
    /// When its resource metrics were taken; none: now.
    pub metric_time: Option<Seconds>,
    /// Over how long they were taken.
    pub metric_window: Seconds,
    /// Resource usage summed over the containers; a resource that is not there is missing, not 0.
    pub usage: BTreeMap<String, i64>,
    /// Requests summed over the containers; only resources that every container requests.
    pub requests: BTreeMap<String, i64>,
    /// The same for single containers, where a metric asks for one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<String, ContainerUse>,
    /// Custom metrics.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, i64>,
}

/// Usage and requests of one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ContainerUse {
    /// Usage by resource.
    pub usage: BTreeMap<String, i64>,
    /// Requests by resource.
    pub requests: BTreeMap<String, i64>,
}

/// Phases of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub enum Phase {
    Pending,
    #[default]
    Running,
    Succeeded,
    Failed,
    Unknown,
}

/// Condition `Ready` of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyCondition {
    /// Whether it is `True`; none: `Unknown`.
    pub status: Option<bool>,
    /// Since when; none: unknown, as of long ago.
    pub since: Option<Seconds>,
}
