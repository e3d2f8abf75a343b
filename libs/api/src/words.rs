//! Texts for people about wire types, so that the command line and the web page use the same words.

use std::fmt;

use drover_scheduling::{AppDecision, Candidate, MemberLink, Verdict};
use uuid::Uuid;

use crate::agents::AgentReport;
use crate::apps::AppSuffering;
use crate::plans::{PlanDocument, PlanState, PlanSubject};

impl fmt::Display for PlanSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newcomer(dig) => write!(f, "room for {}/{}", dig.project, dig.name),
            Self::Drain(member) => write!(f, "drain {member}"),
            Self::Relieve(member) => write!(f, "relieve {member}"),
        }
    }
}

/// A cluster that was considered for an app, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered<'a> {
    pub app: &'a str,
    /// The cluster, as `<provider>+<cluster>`.
    pub member: &'a str,
    /// Priority of the provider, from 1 (filled first) to 10.
    pub priority: u8,
    /// The result in a few words.
    pub verdict: &'static str,
    /// Explanation; may be empty.
    pub reason: &'a str,
}

/// One row for each cluster that was considered, in the order of the decision.
pub fn considered(decision: &AppDecision) -> impl Iterator<Item = Considered<'_>> {
    decision.groups.iter().flat_map(|group| &group.considered).map(|considered| Considered {
        app: &decision.app,
        member: &considered.member.0,
        priority: considered.priority,
        verdict: verdict(considered.verdict),
        reason: &considered.reason,
    })
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Chosen => "chosen",
        Verdict::Fits => "fits",
        Verdict::NoRoom => "no room",
        Verdict::NoNodeMatches => "no node matches",
        Verdict::LessPreferred => "less preferred",
        Verdict::Unknown => "unknown",
        Verdict::NotAllowed => "not allowed",
    }
}

/// The scores of a candidate by algorithm, for example `CPUUtilization 0.12, Age –`.
pub fn scores(candidate: &Candidate) -> String {
    let score = |score: &drover_scheduling::Score| {
        format!("{} {}", score.algorithm, score.value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}")))
    };
    candidate.scores.iter().map(score).collect::<Vec<_>>().join(", ")
}

/// A share in per cent, rounded to the nearest integer; `None` if `whole` is not positive. It can be more than 100.
pub fn percent(part: i64, whole: i64) -> Option<i64> {
    // In 128 bits: a hundred times the bytes of a large fleet does not fit 64.
    let (part, whole) = (i128::from(part), i128::from(whole));
    (whole > 0).then(|| i64::try_from((part * 100 + whole / 2).div_euclid(whole)).unwrap_or(i64::MAX))
}

/// How the agent of a linked cluster is, in a few words.
pub fn link(link: &MemberLink) -> String {
    let Some(since) = &link.connected_since else { return "not connected".to_owned() };
    let version = link.version.as_ref().map(|version| format!(", drover-link {version}")).unwrap_or_default();
    let until = link.certificate_expires.as_ref().map(|until| format!(", certificate until {}", seconds(until))).unwrap_or_default();
    format!("connected since {}{version}{until}", seconds(since))
}

/// A time in RFC 3339 without fractions of a second.
fn seconds(time: &str) -> String {
    time.split_once('.').map_or_else(|| time.to_owned(), |(whole, _)| format!("{whole}Z"))
}

/// Where and why an app suffers, and what follows from it.
pub fn suffering(app: &AppSuffering) -> String {
    let AppSuffering { member, policy, reason, seconds, for_seconds, attempt } = app;
    let follows = match seconds < for_seconds {
        true => format!("when that has lasted {for_seconds} s, the policy {policy} moves an app that suffers there"),
        false => format!("by the policy {policy} it is time to move an app that suffers there"),
    };
    let attempt = attempt.as_ref().map_or_else(String::new, |attempt| format!("; {attempt}"));
    format!("on {member}, {reason}; {follows}{attempt}")
}

/// Why a plan moved an app to where it is, as the newest of these plans that did so says. `plans`: the newest first.
pub fn moved_by(plans: &[PlanDocument], dig: Uuid, app: &str, member: &str) -> Option<String> {
    let applied = plans.iter().filter(|plan| matches!(plan.state, PlanState::Accepted | PlanState::Applied));
    let found = applied.into_iter().find(|document| {
        let moves = document.plan.iter().flat_map(|plan| plan.waves.iter().flatten());
        moves.into_iter().any(|one| one.dig.id == dig && one.app == app && one.to.0 == member)
    })?;
    let why = match (&found.kind, &found.reason) {
        (PlanSubject::Newcomer(dig), _) => format!("to make room for {}/{}", dig.project, dig.name),
        (PlanSubject::Drain(member), _) => format!("to empty {member}"),
        (PlanSubject::Relieve(member), Some(reason)) => format!("off {member}: {reason}"),
        (PlanSubject::Relieve(member), None) => format!("off {member}, where it suffered or had outgrown the room"),
    };
    Some(format!("plan {} moved it to {member} {why}", found.id))
}

/// A report that is older than this many seconds is shown with its age, and nothing is decided by it.
pub const SILENT: u64 = 60;

/// What an agent reports, in a few words.
pub fn agent_report(report: &AgentReport) -> String {
    let mut words = Vec::new();
    match report.nodes {
        0 => words.push(format!("{} policies", report.watches)),
        nodes => words.push(format!("{nodes} nodes, {} containers", report.watches)),
    }
    let mut say = |count: u64, what: &str| {
        if count > 0 {
            words.push(format!("{count} {what}"));
        }
    };
    say(report.undecided, "without a reading");
    say(report.unmet_pods, "pods beyond the bounds");
    say(report.held, "held");
    say(report.oom_kills, "killed for memory");
    if let Some(percent) = report.memory_percent {
        words.push(format!("memory {percent} %"));
    }
    if let Some(seconds) = report.seconds_to_exhaustion {
        words.push(format!("exhausted in {seconds} s"));
    }
    if report.age_seconds > SILENT {
        words.push(format!("silent for {} s", report.age_seconds));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use drover_scheduling::{Amounts, DigRef, MemberKey, Move, Plan};

    use super::*;

    #[test]
    fn shares_are_rounded_to_the_nearest() {
        assert_eq!([percent(874, 1000), percent(875, 1000), percent(0, 7), percent(9, 8)], [Some(87), Some(88), Some(0), Some(113)]);
        assert_eq!([percent(1, 0), percent(i64::MAX, i64::MAX), percent(-1, 1000)], [None, Some(100), Some(0)]);
    }

    #[test]
    fn suffering_says_what_follows_and_what_was_tried() {
        let mut app = AppSuffering {
            member: MemberKey::new("onprem", "a"),
            policy: "calm".into(),
            reason: "the memory of its fullest node is in use by 95 %, above 90 % for 40 s".into(),
            seconds: 40,
            for_seconds: 120,
            attempt: None,
        };
        assert_eq!(
            suffering(&app),
            "on onprem+a, the memory of its fullest node is in use by 95 %, above 90 % for 40 s; when that has lasted 120 s, the policy calm \
             moves an app that suffers there"
        );
        (app.seconds, app.attempt) = (120, Some("no plan helps, as plan 7 says".into()));
        assert!(
            suffering(&app).ends_with("by the policy calm it is time to move an app that suffers there; no plan helps, as plan 7 says")
        );
    }

    #[test]
    fn newest_plan_that_moved_an_app_says_why() {
        let plan = |n: u128, state: PlanState, kind: PlanSubject, to: &str| {
            let dig = DigRef { id: Uuid::from_u128(9), ..DigRef::default() };
            let made = Move {
                claim: Uuid::nil(),
                dig,
                app: "web".into(),
                from: MemberKey::new("p", "b"),
                to: MemberKey::new("p", to),
                alternatives: vec![],
                pods: vec![],
                frees: Amounts::default(),
                reason: String::new(),
            };
            PlanDocument {
                id: Uuid::from_u128(n),
                kind,
                state,
                reason: Some("it has grown".into()),
                why: None,
                operation: None,
                plan: Some(Plan { waves: vec![vec![made]], ..Plan::default() }),
                infeasible: None,
                policy: String::new(),
                made_on: String::new(),
                created_at: String::new(),
            }
        };
        let plans = [
            plan(4, PlanState::Refused, PlanSubject::Drain(MemberKey::new("p", "b")), "a"),
            plan(3, PlanState::Applied, PlanSubject::Relieve(MemberKey::new("p", "b")), "a"),
            plan(2, PlanState::Applied, PlanSubject::Drain(MemberKey::new("p", "c")), "a"),
        ];
        let said = |member: &str| moved_by(&plans, Uuid::from_u128(9), "web", member);
        assert_eq!(said("p+a"), Some(format!("plan {} moved it to p+a off p+b: it has grown", Uuid::from_u128(3))));
        assert_eq!((said("p+x"), moved_by(&plans, Uuid::nil(), "web", "p+a")), (None, None));
    }

    #[test]
    fn reports_are_told_in_words() {
        let autoscaler = AgentReport { watches: 3, unmet_pods: 2, age_seconds: 5, ..AgentReport::default() };
        assert_eq!(agent_report(&autoscaler), "3 policies, 2 pods beyond the bounds");
        let guard = AgentReport {
            watches: 9,
            nodes: 2,
            held: 1,
            memory_percent: Some(91),
            seconds_to_exhaustion: Some(42),
            age_seconds: 90,
            ..AgentReport::default()
        };
        assert_eq!(agent_report(&guard), "2 nodes, 9 containers, 1 held, memory 91 %, exhausted in 42 s, silent for 90 s");
    }
}
