//! Reads what Drover's agents in a member report: they write it into an annotation of their Leases, which they renew anyway.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_agent::{AGENT, REPORT};
use drover_api::agents::{AgentReport, UnmetDemand};
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;

use super::metrics::{List, get};
use crate::app::Reports;

/// The Leases of all agents, in one request.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=drover.io%2Fagent";

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Lease {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    renew_time: Option<String>,
    holder_identity: Option<String>,
}

/// What one Lease says. Both agents are read as this; what one does not say is zero.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Told {
    version: String,
    watches: u64,
    undecided: u64,
    unmet_pods: u64,
    unmet: Vec<UnmetDemand>,
    held: u64,
    oom_kills: u64,
    capacity: u64,
    used: u64,
    seconds_to_exhaustion: Option<f64>,
}

/// The reports; `None` where the member does not answer, or may not be asked.
pub async fn read(client: &Client) -> Option<Reports> {
    let found: List<Lease> = get(client, LEASES).await?;
    Some(summed(found.items, Timestamp::now()))
}

/// Adds the Leases of each agent up.
fn summed(leases: Vec<Lease>, now: Timestamp) -> Reports {
    let mut found = Reports::default();
    for Lease { metadata, spec } in leases {
        let Some(agent) = metadata.labels.get(AGENT) else { continue };
        // A report of another version is read as far as it is understood; one that is no JSON says nothing.
        let Some(told) = metadata.annotations.get(REPORT).and_then(|text| serde_json::from_str::<Told>(text).ok()) else { continue };
        let renewed: Option<Timestamp> = spec.renew_time.and_then(|text| text.parse().ok());
        let age = renewed.map_or(0, |at| u64::try_from(now.duration_since(at).as_secs()).unwrap_or(0));
        let nodes = u64::from(agent == "memory-guard");
        let report =
            found.agents.entry(agent.clone()).or_insert_with(|| AgentReport { version: told.version.clone(), ..AgentReport::default() });
        report.version = std::mem::take(&mut report.version).min(told.version);
        report.age_seconds = report.age_seconds.max(age);
        report.watches += told.watches;
        report.nodes += nodes;
        report.undecided += told.undecided;
        report.unmet_pods += told.unmet_pods;
        if age <= Reports::COUNTS_SECONDS {
            for unmet in &told.unmet {
                *unmet.binding.map_or(&mut 0, |binding| found.unmet.entry(binding).or_default()) += unmet.pods;
            }
        }
        report.unmet.extend(told.unmet);
        report.held += told.held;
        report.oom_kills += told.oom_kills;
        let seconds = told.seconds_to_exhaustion.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).map(|time| time.as_secs());
        report.seconds_to_exhaustion = [report.seconds_to_exhaustion, seconds].into_iter().flatten().min();
        let percent = (told.capacity > 0).then(|| told.used.saturating_mul(100) / told.capacity);
        report.memory_percent = report.memory_percent.max(percent);
        if let (Some(node), Some(percent), true) = (spec.holder_identity, percent, age <= Reports::COUNTS_SECONDS) {
            found.nodes.insert(node, percent);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    fn lease(agent: &str, report: &Value) -> Lease {
        let annotations = [(REPORT, report.as_str().map_or_else(|| report.to_string(), str::to_owned))];
        let metadata = json!({"labels": {(AGENT): agent}, "annotations": BTreeMap::from(annotations)});
        let spec = json!({"renewTime": "2026-01-01T00:00:00.000000Z", "holderIdentity": report["node"]});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn leases_of_an_agent_are_added_up() {
        let node = |held: u64, used: u64, seconds: Option<f64>| {
            lease(
                "memory-guard",
                &json!({"version": "1", "held": held, "used": used, "capacity": 100, "secondsToExhaustion": seconds, "watches": 3,
                    "node": format!("n{held}")}),
            )
        };
        let copy = Uuid::from_u128(1);
        let of_policies = json!([{"policy": "shop/web", "pods": 2, "binding": copy}, {"policy": "by/hand", "pods": 3}]);
        let unmet = json!({"version": "1", "watches": 7, "unmetPods": 5, "unmet": of_policies, "new": true});
        let leases = vec![node(1, 40, None), node(2, 90, Some(12.5)), lease("autoscaler", &unmet), lease("autoscaler", &json!("no JSON"))];
        let all = summed(leases.clone(), "2026-01-01T00:00:05Z".parse().unwrap());
        let found = &all.agents;
        let guard = &found["memory-guard"];
        assert_eq!(
            (guard.nodes, guard.held, guard.watches, guard.seconds_to_exhaustion, guard.memory_percent),
            (2, 3, 6, Some(12), Some(90))
        );
        assert_eq!(guard.age_seconds, 5);
        let autoscaler = &found["autoscaler"];
        assert_eq!((autoscaler.watches, autoscaler.unmet_pods, autoscaler.unmet[0].policy.as_str()), (7, 5, "shop/web"));
        assert_eq!(all.nodes, [("n1".to_owned(), 40), ("n2".to_owned(), 90)].into());
        assert_eq!(all.unmet, [(copy, 2)].into());
        let late = summed(leases, "2026-01-01T00:02:00Z".parse().unwrap());
        assert!(late.nodes.is_empty() && late.unmet.is_empty(), "what was true two minutes ago says nothing about now");
    }
}
