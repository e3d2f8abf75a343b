//! What the synchronizer's word on a binding means for whoever waits for it. Pure.

use std::time::Duration;

use drover_api::bindings::{BindingStatus, Phase};
use drover_store::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::Deadlines;

/// A binding that was told to be present, and since when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// With which fence: an older word does not speak of it.
    pub fence: i64,
    /// Bundle.
    pub digest: String,
    /// When it was sent first; its patience counts from here.
    pub at: Timestamp,
    /// Since when its pods find no node, or its member does not answer.
    #[serde(default)]
    pub trouble: Option<Timestamp>,
}

/// What to make of a word.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Look again, at this time at the latest.
    Waiting {
        /// When patience ends.
        until: Timestamp,
        /// Its objects are there, not all ready.
        applied: bool,
        /// How far it is, for people.
        note: Option<String>,
    },
    /// It serves.
    Ready,
    /// Its pods have found no node for too long.
    Unschedulable(String),
    /// It will not do.
    Failed {
        /// Stable code.
        code: String,
        /// For people.
        reason: String,
    },
}

/// Judges a binding. Notes in `sent` since when it is in trouble.
pub fn judge(sent: &mut Sent, status: Option<&BindingStatus>, now: Timestamp, deadlines: &Deadlines) -> Verdict {
    let status = status.filter(|status| status.fence >= sent.fence && *status.digest == *sent.digest);
    let phase = status.map(|status| status.phase);
    match (phase, status) {
        (Some(Phase::Ready), _) => {
            sent.trouble = None;
            return Verdict::Ready;
        }
        (Some(Phase::Failed), Some(status)) => {
            return Verdict::Failed {
                code: status.code.clone().unwrap_or_else(|| "apply_failed".to_owned()),
                reason: status.reason.clone().unwrap_or_else(|| "the member refused it".to_owned()),
            };
        }
        _ => {}
    }
    let unschedulable = status.and_then(|status| status.unschedulable.clone());
    let unreachable = phase == Some(Phase::Unreachable);
    sent.trouble = if unschedulable.is_some() || unreachable { Some(sent.trouble.unwrap_or(now)) } else { None };

    let late = after(sent.at, deadlines.ready);
    if now >= late {
        return Verdict::Failed {
            code: "not_ready".to_owned(),
            reason: format!(
                "not ready after {} s: {}",
                deadlines.ready.as_secs(),
                status.map_or_else(|| "nothing was heard of it".to_owned(), why_not)
            ),
        };
    }
    let mut until = late;
    if let Some(since) = sent.trouble {
        let patience = if unreachable { deadlines.unreachable } else { deadlines.unschedulable };
        let ends = after(since, patience);
        if now >= ends {
            return match unschedulable {
                Some(words) => Verdict::Unschedulable(words),
                None => Verdict::Failed {
                    code: "cluster_unreachable".to_owned(),
                    reason: format!("its cluster has not answered for {} s", patience.as_secs()),
                },
            };
        }
        until = Timestamp(until.0.min(ends.0));
    }
    Verdict::Waiting { until, applied: phase == Some(Phase::Applied), note: status.map(why_not) }
}

/// Why it is not ready, in a few words.
pub fn why_not(status: &BindingStatus) -> String {
    if let Some(reason) = status.unschedulable.clone().or_else(|| status.reason.clone()) {
        return reason;
    }
    let waiting: Vec<_> = status
        .objects
        .iter()
        .filter(|object| !object.ready)
        .map(|object| {
            format!("{}/{}{}", object.kind, object.name, object.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())
        })
        .collect();
    if waiting.is_empty() { format!("{:?}", status.phase).to_lowercase() } else { waiting.join("; ") }
}

/// `time` plus `patience`.
pub fn after(time: Timestamp, patience: Duration) -> Timestamp {
    Timestamp(time.0.saturating_add(patience).unwrap_or(time.0))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

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
        BindingStatus {
            id: Uuid::nil(),
            member: Default::default(),
            digest: "d".into(),
            fence: 5,
            phase,
            code: None,
            reason: None,
            unschedulable: None,
            objects: vec![],
        }
    }

    #[test]
    fn only_a_word_on_what_was_sent_counts() {
        let old_fence = BindingStatus { fence: 4, ..status(Phase::Ready) };
        let old_digest = BindingStatus { digest: "c".into(), ..status(Phase::Ready) };
        for status in [None, Some(&old_fence), Some(&old_digest)] {
            assert!(matches!(judge(&mut sent(), status, at(1), &deadlines()), Verdict::Waiting { .. }), "{status:?}");
        }
        assert_eq!(judge(&mut sent(), Some(&status(Phase::Ready)), at(1), &deadlines()), Verdict::Ready);
    }

    #[test]
    fn patience_ends() {
        assert!(matches!(judge(&mut sent(), None, at(99), &deadlines()), Verdict::Waiting { .. }));
        let verdict = judge(&mut sent(), Some(&status(Phase::Applied)), at(100), &deadlines());
        assert!(matches!(&verdict, Verdict::Failed { code, .. } if code == "not_ready"), "{verdict:?}");
    }

    #[test]
    fn trouble_counts_from_when_it_began_and_ends_when_it_does() {
        let stuck = BindingStatus { unschedulable: Some("0/3 nodes".into()), ..status(Phase::Applied) };
        let mut sent = sent();
        assert!(matches!(judge(&mut sent, Some(&stuck), at(5), &deadlines()), Verdict::Waiting { until, .. } if until == at(15)));
        judge(&mut sent, Some(&status(Phase::Applied)), at(6), &deadlines());
        assert_eq!(sent.trouble, None);
        judge(&mut sent, Some(&stuck), at(20), &deadlines());
        assert_eq!(judge(&mut sent, Some(&stuck), at(30), &deadlines()), Verdict::Unschedulable("0/3 nodes".into()));

        let dead = status(Phase::Unreachable);
        let mut sent = super::Sent { trouble: Some(at(0)), ..sent };
        assert!(matches!(judge(&mut sent, Some(&dead), at(19), &deadlines()), Verdict::Waiting { .. }));
        assert!(
            matches!(judge(&mut sent, Some(&dead), at(20), &deadlines()), Verdict::Failed { code, .. } if code == "cluster_unreachable")
        );
    }
}
