//! The HTTP documents that the request path (or any other source that pushes) and the agent exchange.
//!
//! `POST /v1/statistics` with [`Push`]: 200 and the target's [`Standing`] after the push. Any agent accepts it and passes it on to the agent that
//! acts. `GET /v1/standing/{namespace}/{policy}`: the same answer without a push. Callers send a token (`agent::callers`).

use std::collections::BTreeMap;

use drover_autoscaling::kpa::RequestReport;
use serde::{Deserialize, Serialize};

/// Statistics of one second, or of a first request that is reported at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Push {
    /// Namespace of the ScalingPolicy.
    pub namespace: String,
    /// Name of the ScalingPolicy.
    pub policy: String,
    /// Name of the reporting pod.
    pub reporter: String,
    /// What a queue-proxy or an activator measured since its last report. A report with requests for a target at zero replicas is
    /// decided on at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestReport>,
    /// Current values by name: external metrics of `threshold`, or `expired` (requests since the last push) of `qlearning`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
}

/// The state of a target, which the request path needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// Pods wanted by the last decision; none: nothing was decided yet.
    pub want: Option<i32>,
    /// Ready pods.
    pub ready: i32,
    /// Burst capacity that is left; below 0 the activator must be in the request path. None: not a KPA policy, or nothing was decided yet.
    pub excess_burst_capacity: Option<i32>,
}
