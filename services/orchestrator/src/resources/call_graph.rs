//! Call graphs: which apps of a composite app call each other, and how often. Without a call graph apps are placed one by one,
//! with one in groups (docs/how-to/group-placement.md).

use std::collections::BTreeSet;

use drover_api::scheduling::{CallTerms, CallTo, GroupPolicy, Latency, MemberKey};
use drover_resources::{DocumentKind, Invalid, Place, Put, Reference, Spec};
use drover_service::codes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{APP, COMPOSITE_APP};

/// Default maximum number of apps in a group.
const DEFAULT_RHO: u32 = 4;
const MAX_CALLS: usize = 1_000;
/// Latencies are sent with every app of the group, so their number is limited.
const MAX_LATENCIES: usize = 64;
/// Bytes per round trip: the TCP window without scaling. A larger call needs one more round trip for each further window.
const WINDOW: f64 = 65_536.0;
const MAX_NUMBER: f64 = 1e9;

/// The calls between the apps of a composite app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallGraphSpec {
    /// Declared calls.
    #[serde(default)]
    pub calls: Vec<CallSpec>,
    /// Maximum number of apps in a group, 1 to 20; default 4. With 1 there are no groups; only the calls are taken into account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rho: Option<u32>,
    /// If a group does not fit together at the best provider, place it together at the next one. Default: split it, so that no app
    /// runs at a worse provider because of the apps that it calls.
    #[serde(default, rename = "keepTogether")]
    pub keep_together: bool,
    /// What chooses the clusters of groups and apps: `cgs-greedy` (default), or `learned`, a trained network whose placement is taken
    /// unless that of `cgs-greedy` is better.
    #[serde(default)]
    pub policy: GroupPolicy,
    /// Writes preferred pod affinity between the apps of a group into their manifests, so that the cluster's scheduler
    /// places them on the same node if possible. Default: manifests are not changed.
    #[serde(default, rename = "nodePreferences")]
    pub node_preferences: bool,
    /// Which calls are used: `declared` (default), `measured`, or `both` (measured ones where their confidence is high enough,
    /// declared ones elsewhere).
    #[serde(default)]
    pub source: CallSource,
    /// Minimum confidence of a measured pair, 0 to 1; default 0.5 (about three calls in the last minutes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Also measures calls by a query over a service mesh's metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusSpec>,
    /// Latencies between clusters. A pair that is not listed has the highest latency that is listed. None: all pairs are equal.
    #[serde(default)]
    pub latencies: Vec<LatencySpec>,
}

/// One app calls another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallSpec {
    /// The calling app.
    pub from: String,
    /// The called app.
    pub to: String,
    /// Number of calls, per user request or per second: any unit, the same for all calls.
    pub calls: f64,
    /// Bytes of a call and its answer; a call of more than 64 KiB counts as several.
    #[serde(default)]
    pub bytes: f64,
}

/// The latency between two clusters, in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencySpec {
    /// `<provider>+<cluster>`.
    pub from: MemberKey,
    /// `<provider>+<cluster>`.
    pub to: MemberKey,
    /// Round trip time in milliseconds.
    pub ms: f64,
}

/// Which calls are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallSource {
    /// Only declared ones.
    #[default]
    Declared,
    /// Only measured ones.
    Measured,
    /// Measured ones, and declared ones where none are measured.
    Both,
}

/// A query over a service mesh's metrics. The address of Prometheus is a setting of orchestrator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PrometheusSpec {
    /// An instant query for calls per second by calling and called app, such as
    /// `sum by (source_workload, destination_workload) (rate(istio_requests_total{reporter="source"}[10m]))`.
    pub query: String,
    /// Label with the calling app; default `source_workload`.
    #[serde(default, rename = "fromLabel", skip_serializing_if = "Option::is_none")]
    pub from_label: Option<String>,
    /// Label with the called app; default `destination_workload`.
    #[serde(default, rename = "toLabel", skip_serializing_if = "Option::is_none")]
    pub to_label: Option<String>,
    /// Range of the query in seconds, used for the confidence; default 600.
    #[serde(default, rename = "windowSeconds", skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<f64>,
}

impl PrometheusSpec {
    /// The label with the calling app.
    pub fn from_label(&self) -> &str {
        self.from_label.as_deref().unwrap_or("source_workload")
    }
    /// The label with the called app.
    pub fn to_label(&self) -> &str {
        self.to_label.as_deref().unwrap_or("destination_workload")
    }
    /// The range of the query in seconds.
    pub fn window_seconds(&self) -> f64 {
        self.window_seconds.unwrap_or(600.0)
    }
}

impl CallGraphSpec {
    /// Minimum confidence of a measured pair.
    pub fn confidence(&self) -> f64 {
        self.confidence.unwrap_or(0.5)
    }

    /// Maximum number of apps in a group.
    pub fn rho(&self) -> u32 {
        self.rho.unwrap_or(DEFAULT_RHO)
    }

    /// The calls of one app as sent to placement, with the latencies between `members` only.
    pub fn terms(&self, app: &str, members: &[MemberKey]) -> CallTerms {
        let calls = self.calls.iter().filter(|call| call.from == app && call.calls > 0.0);
        let has = |wanted: &MemberKey| members.iter().any(|member| member.includes(wanted));
        let usable = |latency: &&LatencySpec| has(&latency.from) && has(&latency.to);
        CallTerms {
            to: calls.map(|call| CallTo { app: call.to.clone(), micro_calls: (call.weight() * 1e6).round() as u64 }).collect(),
            rho: self.rho(),
            keep_together: self.keep_together,
            policy: self.policy,
            latencies: self.latencies.iter().filter(usable).map(LatencySpec::wire).collect(),
        }
    }
}

impl CallSpec {
    /// The calls in round trips.
    pub fn weight(&self) -> f64 {
        self.calls * (self.bytes / WINDOW).ceil().max(1.0)
    }
}

impl LatencySpec {
    fn wire(&self) -> Latency {
        Latency { from: self.from.clone(), to: self.to.clone(), us: (self.ms * 1000.0).round() as u32 }
    }
}

impl Spec for CallGraphSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let mut reasons = Vec::new();
        let number = |value: f64, most: f64| (0.0..=most).contains(&value);
        let mut pairs = BTreeSet::new();
        for (n, call) in self.calls.iter().enumerate() {
            let at = format!("spec.calls[{n}]");
            if call.from == call.to {
                reasons.push(format!("{at}: {} calls itself; remove this call", call.from));
            }
            if !pairs.insert((&call.from, &call.to)) {
                reasons.push(format!("{at}: {} calls {} is listed twice; add the two up", call.from, call.to));
            }
            if !number(call.calls, MAX_NUMBER) || !number(call.bytes, MAX_NUMBER) {
                reasons.push(format!("{at}: calls and bytes must be numbers from 0 to {MAX_NUMBER}"));
            }
        }
        let mut pairs = BTreeSet::new();
        for (n, latency) in self.latencies.iter().enumerate() {
            let at = format!("spec.latencies[{n}]");
            let (a, b) = (&latency.from, &latency.to);
            if a == b {
                reasons.push(format!("{at}: {a} has no latency to itself"));
            }
            for key in [a, b].into_iter().filter(|key| !key.0.contains('+')) {
                reasons.push(format!("{at}: {key} is not <provider>+<cluster>"));
            }
            if !pairs.insert((a.min(b), a.max(b))) {
                reasons.push(format!("{at}: {a} and {b} are listed twice; a latency applies in both directions"));
            }
            if !number(latency.ms, 60_000.0) {
                reasons.push(format!("{at}: ms must be a number from 0 to 60000"));
            }
        }
        if !(1..=20).contains(&self.rho()) {
            reasons.push("spec.rho must be from 1 to 20".to_owned());
        }
        if !number(self.confidence(), 1.0) {
            reasons.push("spec.confidence must be a number from 0 to 1".to_owned());
        }
        if let Some(prometheus) = &self.prometheus {
            if prometheus.query.trim().is_empty() {
                reasons.push("spec.prometheus.query is empty".to_owned());
            }
            if !number(prometheus.window_seconds(), 1e6) {
                reasons.push("spec.prometheus.windowSeconds must be a number from 0 to 1000000".to_owned());
            }
        }
        if self.calls.len() > MAX_CALLS || self.latencies.len() > MAX_LATENCIES {
            reasons.push(format!("there may be {MAX_CALLS} calls and {MAX_LATENCIES} latencies; leave out those that matter least"));
        }
        if reasons.is_empty() { Ok(()) } else { Err(Invalid { code: codes::CALL_GRAPH_INVALID, reasons }) }
    }

    fn references(&self, at: &Place<'_>) -> Vec<Reference> {
        let composite_app = COMPOSITE_APP.within(at.path).unwrap_or_default();
        let apps: BTreeSet<&str> = self.calls.iter().flat_map(|call| [call.from.as_str(), call.to.as_str()]).collect();
        apps.into_iter().map(|app| Reference { field: "spec.calls", path: format!("{composite_app}/{}/{app}", APP.segment) }).collect()
    }
}

/// Call graphs. A composite app may have one.
pub static CALL_GRAPH: DocumentKind =
    DocumentKind::of::<CallGraphSpec>("call-graph", "CallGraph", "call-graphs", &["callGraph"]).below(&COMPOSITE_APP).put(Put::Upsert);

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(spec: serde_json::Value) -> CallGraphSpec {
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn validate_returns_all_reasons_with_call_graph_invalid() {
        let bad = graph(serde_json::json!({
            "calls": [
                {"from": "a", "to": "a", "calls": 1}, {"from": "a", "to": "b", "calls": -1}, {"from": "a", "to": "b", "calls": 2},
            ],
            "rho": 0,
            "latencies": [
                {"from": "x+a", "to": "x+a", "ms": 1}, {"from": "x+a", "to": "b", "ms": 1e9},
                {"from": "x+a", "to": "x+c", "ms": 1}, {"from": "x+c", "to": "x+a", "ms": 2},
            ],
        }));
        let error = bad.validate("g").unwrap_err();
        assert_eq!(error.code, codes::CALL_GRAPH_INVALID);
        assert_eq!(error.reasons.len(), 8, "{:#?}", error.reasons);
        graph(serde_json::json!({"calls": []})).validate("g").unwrap();
    }

    #[test]
    fn terms_have_the_apps_own_calls_and_the_members_latencies() {
        let spec = graph(serde_json::json!({
            "calls": [{"from": "a", "to": "b", "calls": 1.5, "bytes": 140_000}, {"from": "b", "to": "a", "calls": 7}, {"from": "a", "to": "c", "calls": 0}],
            "latencies": [{"from": "x+a", "to": "x+b", "ms": 0.25}, {"from": "x+a", "to": "y+c", "ms": 9}],
            "policy": "learned",
        }));
        let members = [MemberKey::new("x", "a"), MemberKey::new("x", "b")];
        let terms = spec.terms("a", &members);
        // 140,000 bytes are two full windows and a part: three round trips.
        assert_eq!(terms.to, [CallTo { app: "b".into(), micro_calls: 4_500_000 }]);
        assert_eq!(terms.latencies, [Latency { from: members[0].clone(), to: members[1].clone(), us: 250 }]);
        assert_eq!((terms.rho, terms.keep_together, terms.policy), (4, false, GroupPolicy::Learned));
        assert_eq!(graph(serde_json::json!({"calls": []})).policy, GroupPolicy::CgsGreedy);
    }
}
