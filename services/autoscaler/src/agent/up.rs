//! What the agent reports with its Lease: how many policies it carries out, which could not be decided, and the pods that loads would
//! need beyond the bounds of their policies.

use std::sync::{Arc, PoisonError};

use drover_autoscaling::{DecisionRecord, Reason};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Latest;
use super::inbox::Key;
use super::lease::ReportSource;

/// At most so many policies are named; a Lease is read often.
const NAMED: usize = 10;

/// The report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub version: String,
    /// Policies about which something was decided.
    pub watches: usize,
    /// Policies of which the last decision lacked a reading.
    pub undecided: usize,
    /// Pods that all policies together would have if it were not for their upper bounds.
    pub unmet_pods: i64,
    /// The policies with the most of them.
    pub unmet: Vec<UnmetPolicy>,
}

/// A policy whose load needs more pods than its upper bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnmetPolicy {
    /// `namespace/name`
    pub policy: String,
    /// Pods that are wanted beyond the bound.
    pub pods: i32,
    /// The copy of an app that the policy belongs to, if Drover applied the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Uuid>,
}

/// Makes the report from the last decisions.
pub(super) fn source(latest: Latest) -> ReportSource {
    Arc::new(move || {
        let latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
        let report = Report::of(latest.iter().map(|(key, decided)| (key, &*decided.record, decided.binding)));
        serde_json::to_string(&report).unwrap_or_default()
    })
}

impl Report {
    /// The report about these decisions.
    pub fn of<'a>(decisions: impl Iterator<Item = (&'a Key, &'a DecisionRecord, Option<Uuid>)>) -> Self {
        let version = std::env::var("DROVER_AGENT_VERSION").unwrap_or_else(|_| env!("CARGO_PKG_VERSION").to_owned());
        let mut report = Self { version, ..Self::default() };
        for ((namespace, name), record, binding) in decisions {
            report.watches += 1;
            report.undecided += usize::from(record.want.is_none());
            let wanted = record.rate_limited.filter(|_| record.reason == Reason::TooManyReplicas);
            let beyond = wanted.zip(record.bounded).map_or(0, |(wanted, bounded)| wanted.saturating_sub(bounded));
            if beyond > 0 {
                report.unmet_pods += i64::from(beyond);
                report.unmet.push(UnmetPolicy { policy: format!("{namespace}/{name}"), pods: beyond, binding });
            }
        }
        report.unmet.sort_by(|a, b| (b.pods, &a.policy).cmp(&(a.pods, &b.policy)));
        report.unmet.truncate(NAMED);
        report
    }
}

#[cfg(test)]
mod tests {
    use drover_autoscaling::{Limits, Policy, ScalingState, limit_only};

    use super::*;

    fn decision(desired: i32) -> DecisionRecord {
        let (policy, limits) = (Policy::Threshold(Default::default()), Limits { min_replicas: 1, max_replicas: 3, ..Limits::default() });
        let state = ScalingState::new(&policy, &limits, 0.0, 3);
        limit_only(&limits, state, 1_000.0, 3, desired).0
    }

    #[test]
    fn report_counts_policies_and_names_those_beyond_their_bounds() {
        let key = |name: &str| ("shop".to_owned(), name.to_owned());
        let undecided = DecisionRecord { want: None, ..decision(3) };
        let decisions = [(key("web"), decision(5)), (key("cart"), decision(4)), (key("calm"), decision(2)), (key("blind"), undecided)];
        let report = Report::of(decisions.iter().map(|(key, record)| (key, record, Some(Uuid::nil()))));
        assert_eq!((report.watches, report.undecided, report.unmet_pods), (4, 1, 3));
        let named: Vec<(&str, i32)> = report.unmet.iter().map(|unmet| (unmet.policy.as_str(), unmet.pods)).collect();
        assert_eq!(named, [("shop/web", 2), ("shop/cart", 1)]);
        assert_eq!(report.unmet[0].binding, Some(Uuid::nil()));
    }
}
