//! What the request path (and any other source that pushes) and the agent say to each other over HTTP.
//!
//! `POST /v1/statistics` with [`Push`]: 200 and the target's [`Standing`] as it is after the push; any agent takes it, the one
//! that acts keeps it. `GET /v1/standing/{namespace}/{policy}`: the same answer without a push. Callers show a token (`agent::callers`).

use std::collections::BTreeMap;

use drover_autoscaling::kpa::RequestReport;
use serde::{Deserialize, Serialize};

/// Statistics of one second, or a poke.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Push {
    /// Namespace of the ScalingPolicy.
    pub namespace: String,
    /// Its name.
    pub policy: String,
    /// Who reports: a pod's name, or the activator's.
    pub reporter: String,
    /// What a queue-proxy or an activator measured since its last report. A report with requests while the target is at zero is
    /// decided on at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestReport>,
    /// Named values of now: external metrics of `threshold`, `expired` (requests since the last push) of `qlearning`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
}

/// How a target stands: what the request path steers by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// Pods wanted by the last decision; none: nothing was decided yet.
    pub want: Option<i32>,
    /// Pods that are ready.
    pub ready: i32,
    /// Room for a burst; below 0 the activator belongs into the path. None: not a KPA policy, or nothing was decided yet.
    pub excess_burst_capacity: Option<i32>,
}
