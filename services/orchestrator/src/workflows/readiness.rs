//! What the reported status of a binding means for a workflow that waits for it. Pure functions.

use std::time::Duration;

use drover_api::bindings::{BindingStatus, ObjectStatus, Phase};
use drover_store::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::Deadlines;

/// What was sent for a binding that is to be present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Fence of the request; a status with a lower one is about an earlier request.
    pub fence: i64,
    /// Digest of the bundle.
    pub digest: String,
    /// When it was first sent; the deadlines count from here.
    pub at: Timestamp,
    /// Since when its pods find no node or its member does not answer.
    #[serde(default)]
    pub trouble: Option<Timestamp>,
}

/// Whether a binding is ready, and what to do if it is not.
#[derive(Clone, Debug, PartialEq)]
pub enum Readiness {
    /// Not ready yet.
    Waiting {
        /// The next deadline: check again by then.
        until: Timestamp,
        /// All objects are applied; some are not ready.
        applied: bool,
        /// What is missing, for people.
        note: Option<String>,
    },
    /// All objects are ready.
    Ready,
    /// Its pods found no node until the deadline. The text is the scheduler's.
    Unschedulable(String),
    /// Terminal failure.
    Failed {
        /// Stable error code.
        code: String,
        /// For people.
        reason: String,
        /// Another member may accept its objects.
        elsewhere: bool,
        /// What speaks against it there and does not end by itself, if another member may accept its objects.
        lasting: Option<String>,
    },
}

/// Assesses a binding by its latest status. Records in `sent` since when it is in trouble.
pub fn assess(sent: &mut Sent, status: Option<&BindingStatus>, now: Timestamp, deadlines: &Deadlines) -> Readiness {
    let status = status.filter(|status| status.fence >= sent.fence && *status.digest == *sent.digest);
    let phase = status.map(|status| status.phase);
    match (phase, status) {
        (Some(Phase::Ready), _) => {
            sent.trouble = None;
            return Readiness::Ready;
        }
        (Some(Phase::Failed), Some(status)) => {
            return Readiness::Failed {
                code: status.code.clone().unwrap_or_else(|| "apply_failed".to_owned()),
                reason: status.reason.clone().unwrap_or_else(|| "the member refused it".to_owned()),
                elsewhere: status.elsewhere,
                lasting: status.lasting.clone().filter(|_| status.elsewhere),
            };
        }
        _ => {}
    }
    let unschedulable = status.and_then(|status| status.unschedulable.clone());
    let unreachable = phase == Some(Phase::Unreachable);
    sent.trouble = if unschedulable.is_some() || unreachable { Some(sent.trouble.unwrap_or(now)) } else { None };

    // Who asks for time before the app counts as ready gets it on top.
    let limit = deadlines.ready + Duration::from_secs(status.map_or(0, |status| status.serving_after.into()));
    let deadline = after(sent.at, limit);
    if now >= deadline {
        return Readiness::Failed {
            code: "not_ready".to_owned(),
            reason: format!(
                "not ready after {} s: {}",
                limit.as_secs(),
                status.map_or_else(|| "no status was reported".to_owned(), describe)
            ),
            elsewhere: false,
            lasting: None,
        };
    }
    let mut until = deadline;
    if let Some(since) = sent.trouble {
        let limit = if unreachable { deadlines.unreachable } else { deadlines.unschedulable };
        let ends = after(since, limit);
        if now >= ends {
            return match unschedulable {
                Some(reason) => Readiness::Unschedulable(reason),
                None => Readiness::Failed {
                    code: "cluster_unreachable".to_owned(),
                    reason: format!("its cluster has not answered for {} s", limit.as_secs()),
                    elsewhere: false,
                    lasting: None,
                },
            };
        }
        until = Timestamp(until.0.min(ends.0));
    }
    Readiness::Waiting { until, applied: phase == Some(Phase::Applied), note: status.map(describe) }
}

/// How many objects a message names.
const NAMED: usize = 3;

/// Why a binding is not ready, in a few words.
pub fn describe(status: &BindingStatus) -> String {
    if let Some(reason) = status.unschedulable.clone().or_else(|| status.reason.clone()) {
        return reason;
    }
    let mut waiting = status.objects.iter().filter(|object| !object.ready);
    let told: Vec<String> = waiting.by_ref().take(NAMED).map(object).collect();
    match (told.is_empty(), waiting.count()) {
        (true, _) => format!("{:?}", status.phase).to_lowercase(),
        (false, 0) => told.join("; "),
        (false, more) => format!("{}; and {more} more of {} objects", told.join("; "), status.objects.len()),
    }
}

fn object(object: &ObjectStatus) -> String {
    format!("{}/{}{}", object.kind, object.name, object.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())
}

/// `time` plus `duration`.
pub fn after(time: Timestamp, duration: Duration) -> Timestamp {
    Timestamp(time.0.saturating_add(duration).unwrap_or(time.0))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::statuses::in_phase;

    const SECOND: Duration = Duration::from_secs(1);

    fn deadlines() -> Deadlines {
        Deadlines { ready: 100 * SECOND, room: SECOND, unschedulable: 10 * SECOND, unreachable: 20 * SECOND, gone: SECOND }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp(jiff::Timestamp::from_second(1_000_000 + second).unwrap())
    }

    fn sent() -> Sent {
        Sent { fence: 5, digest: "d".into(), at: at(0), trouble: None }
    }

    fn status(phase: Phase) -> BindingStatus {
        in_phase(Uuid::nil(), phase)
    }

    #[test]
    fn status_of_earlier_request_is_ignored() {
        let old_fence = BindingStatus { fence: 4, ..status(Phase::Ready) };
        let old_digest = BindingStatus { digest: "c".into(), ..status(Phase::Ready) };
        for status in [None, Some(&old_fence), Some(&old_digest)] {
            assert!(matches!(assess(&mut sent(), status, at(1), &deadlines()), Readiness::Waiting { .. }), "{status:?}");
        }
        assert_eq!(assess(&mut sent(), Some(&status(Phase::Ready)), at(1), &deadlines()), Readiness::Ready);
    }

    #[test]
    fn describe_names_the_first_objects_and_counts_the_others() {
        let object = |at: usize, ready: bool| ObjectStatus {
            group: String::new(),
            version: "v1".into(),
            kind: "Secret".into(),
            namespace: String::new(),
            name: at.to_string(),
            applied: ready,
            ready,
            reason: None,
        };
        let many = BindingStatus { objects: (0..70).map(|at| object(at, at == 0)).collect(), ..status(Phase::Applying) };
        assert_eq!(describe(&many), "Secret/1; Secret/2; Secret/3; and 66 more of 70 objects");
        let few = BindingStatus { objects: vec![object(1, false)], ..status(Phase::Applying) };
        assert_eq!(describe(&few), "Secret/1");
        assert_eq!(describe(&status(Phase::Applying)), "applying");
    }

    #[test]
    fn not_ready_at_deadline_fails() {
        assert!(matches!(assess(&mut sent(), None, at(99), &deadlines()), Readiness::Waiting { .. }));
        let readiness = assess(&mut sent(), Some(&status(Phase::Applied)), at(100), &deadlines());
        assert!(matches!(&readiness, Readiness::Failed { code, .. } if code == "not_ready"), "{readiness:?}");
    }

    #[test]
    fn time_before_an_app_serves_is_added_to_the_deadline() {
        let warming = BindingStatus { serving_after: 30, ..status(Phase::Applied) };
        assert!(matches!(assess(&mut sent(), Some(&warming), at(129), &deadlines()), Readiness::Waiting { until, .. } if until == at(130)));
        assert!(matches!(assess(&mut sent(), Some(&warming), at(130), &deadlines()), Readiness::Failed { .. }));
    }

    #[test]
    fn trouble_deadline_counts_from_its_start_and_resets_when_it_ends() {
        let stuck = BindingStatus { unschedulable: Some("0/3 nodes".into()), ..status(Phase::Applied) };
        let mut sent = sent();
        assert!(matches!(assess(&mut sent, Some(&stuck), at(5), &deadlines()), Readiness::Waiting { until, .. } if until == at(15)));
        assess(&mut sent, Some(&status(Phase::Applied)), at(6), &deadlines());
        assert_eq!(sent.trouble, None);
        assess(&mut sent, Some(&stuck), at(20), &deadlines());
        assert_eq!(assess(&mut sent, Some(&stuck), at(30), &deadlines()), Readiness::Unschedulable("0/3 nodes".into()));

        let dead = status(Phase::Unreachable);
        let mut sent = super::Sent { trouble: Some(at(0)), ..sent };
        assert!(matches!(assess(&mut sent, Some(&dead), at(19), &deadlines()), Readiness::Waiting { .. }));
        assert!(
            matches!(assess(&mut sent, Some(&dead), at(20), &deadlines()), Readiness::Failed { code, .. } if code == "cluster_unreachable")
        );
    }
}
