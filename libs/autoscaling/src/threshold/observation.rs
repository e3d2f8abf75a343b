//! What the threshold policy observes: the workload, its pods and their metrics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Reading, Seconds};

/// One observation of a workload. All amounts are in thousandths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThresholdObservation {
    pub at: Seconds,
    /// Replicas that are set (`spec.replicas`).
    pub replicas: i32,
    /// Replicas that exist (`status.replicas`). Default: `replicas`.
    pub status_replicas: Option<i32>,
    /// The workload's pods with their metrics.
    pub pods: Reading<Vec<Pod>>,
    /// Metrics of objects and external metrics by name, summed over the selected series.
    pub external: BTreeMap<String, Reading<i64>>,
}

impl ThresholdObservation {
    /// An observation with nothing but the replicas.
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
    pub name: String,
    pub phase: Phase,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// Condition `Ready`; none: the pod has no such condition yet.
    pub ready: Option<ReadyCondition>,
    /// When the kubelet accepted the pod.
    pub start_time: Option<Seconds>,
    /// When its resource metrics were measured; none: at the time of the observation.
    pub metric_time: Option<Seconds>,
    /// Seconds over which they were measured.
    pub metric_window: Seconds,
    /// Resource usage summed over the containers. A resource that is not in the map is missing, not 0.
    pub usage: BTreeMap<String, i64>,
    /// Requests summed over the containers; only resources that every container requests.
    pub requests: BTreeMap<String, i64>,
    /// Usage and requests of single containers, if a metric needs them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<String, ContainerUse>,
    /// Custom metrics by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, i64>,
}

/// Usage and requests of one container, in thousandths.
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
    /// Since when; none: unknown, treated as a long time ago.
    pub since: Option<Seconds>,
}
