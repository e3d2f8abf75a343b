//! Turns answers of the services into the values that the templates print. Pure.

use std::collections::BTreeMap;

use askama::Template;
use drover_api::agents::{AgentCopy, AgentView};
use drover_api::ledger::{ClusterCapacity, Room};
use drover_api::operations::{Operation, OperationState, OperationStep};
use drover_api::plans::{PlanDocument, PlanState, PlanSubject};
use drover_api::problem::ProblemDocument;
use drover_api::scheduling::{Candidate, ClaimState, MemberKey, MemberState};
use drover_api::words;

use super::Action;

/// A time in RFC 3339 without fractions of a second.
pub(super) fn seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => time.to_owned(),
    }
}

/// Number of operations and of plans that the overview shows.
const SHOWN: usize = 12;

/// The page of the REST API. Its script reads `/openapi.json`.
#[derive(Template)]
#[template(path = "docs.html")]
pub struct DocsPage;

/// The overview page.
#[derive(Template)]
#[template(path = "overview.html")]
pub struct Overview {
    clusters: Vec<Cluster>,
    operations: Vec<OperationRow>,
    plans: Vec<PlanRow>,
    problems: Vec<String>,
}

impl Overview {
    /// Makes it from the four lists; `problems` names those that could not be read.
    pub fn new(
        clusters: &[ClusterCapacity],
        agents: &[AgentView],
        operations: &[Operation],
        plans: &[PlanDocument],
        problems: Vec<String>,
    ) -> Self {
        let mut of: BTreeMap<&MemberKey, Vec<AgentLine>> = BTreeMap::new();
        for agent in agents {
            for copy in &agent.copies {
                of.entry(&copy.member).or_default().push(AgentLine::new(agent, copy));
            }
        }
        Self {
            clusters: clusters.iter().map(|cluster| Cluster::new(cluster, of.remove(&cluster.member).unwrap_or_default())).collect(),
            operations: operations.iter().filter(|o| o.parent.is_none()).take(SHOWN).map(|o| OperationRow::new(o, operations)).collect(),
            plans: plans.iter().take(SHOWN).map(PlanRow::new).collect(),
            problems,
        }
    }
}

struct Cluster {
    key: String,
    name: String,
    provider: String,
    priority: u8,
    ready: bool,
    state: String,
    reason: Option<String>,
    cordoned: Option<String>,
    meters: Vec<Meter>,
    apps: Vec<App>,
    /// How its agent is, if it is reached through one.
    link: Option<String>,
    linked: bool,
    agents: Vec<AgentLine>,
    actions: Vec<Action>,
}

/// An agent in a cluster, and what it reports.
struct AgentLine {
    name: String,
    version: String,
    state: String,
    healthy: bool,
    told: String,
}

impl AgentLine {
    fn new(agent: &AgentView, copy: &AgentCopy) -> Self {
        let report = copy.report.as_ref().map(words::agent_report);
        let told: Vec<String> = report.into_iter().chain(copy.reason.clone()).collect();
        Self {
            name: agent.name.clone(),
            version: copy.version.clone().unwrap_or_default(),
            state: copy.state.clone(),
            healthy: copy.state == "Healthy",
            told: told.join("; "),
        }
    }
}

struct Meter {
    name: &'static str,
    text: String,
    requested: i64,
    reserved: i64,
    used: Option<i64>,
}

struct App {
    name: String,
    title: String,
    link: String,
    class: &'static str,
}

impl Cluster {
    fn new(c: &ClusterCapacity, agents: Vec<AgentLine>) -> Self {
        // Agents have lines of their own, and no page.
        let apps = c.apps.iter().filter(|a| !a.dig.is_agent()).map(|a| {
            let name = format!("{}/{}", a.dig.composite_app, a.app);
            let class = match a.state {
                ClaimState::Held => "held",
                ClaimState::Promised => "promised",
                ClaimState::Leaving => "leaving",
            };
            let cpu = a.requested.cpu;
            let title = format!("{}: {class}, {cpu}m CPU and {} MiB requested", a.dig.project, a.requested.memory >> 20);
            App {
                link: format!("/ui/apps/{}/{}/{}/{}/{}", a.dig.project, a.dig.composite_app, a.dig.version, a.dig.name, a.app),
                name,
                title,
                class,
            }
        });
        Self {
            key: c.member.0.clone(),
            name: c.cluster.clone(),
            provider: c.provider.clone(),
            priority: c.priority,
            ready: c.state == MemberState::Ready,
            state: format!("{:?}", c.state),
            reason: c.reason.clone(),
            cordoned: c.cordoned.as_ref().map(|cordon| format!("since {}: {}", cordon.since, cordon.reason)),
            meters: vec![meter("CPU", &c.total, |a| a.cpu), meter("memory", &c.total, |a| a.memory)],
            apps: apps.collect(),
            link: c.link.as_ref().map(words::link),
            linked: c.link.as_ref().is_some_and(|link| link.connected_since.is_some()),
            agents,
            actions: vec![Action::drain(&c.provider, &c.cluster), Action::cordon(&c.provider, &c.cluster, c.cordoned.is_some())],
        }
    }
}

fn meter(name: &'static str, room: &Room, part: impl Fn(&drover_api::scheduling::Amounts) -> i64) -> Meter {
    let percent = |amount| words::percent(amount, part(&room.allocatable));
    // A bar cannot be longer than 100 %.
    let share = |amount| percent(amount).map_or(0, |percent| percent.clamp(0, 100));
    let requested = part(&room.requested);
    Meter {
        name,
        text: percent(requested).map_or_else(|| "–".to_owned(), |percent| format!("{percent} %")),
        requested: share(requested),
        reserved: share(requested + part(&room.reserved)),
        used: room.used.as_ref().map(|used| share(part(used))),
    }
}

struct OperationRow {
    id: String,
    kind: String,
    subject: String,
    state: String,
    failed: bool,
    message: String,
    reasons: Vec<String>,
    plan: Option<String>,
    moves: Vec<MoveRow>,
    created: String,
}

struct MoveRow {
    app: String,
    from: String,
    to: String,
    stage: String,
    seconds: String,
    reason: String,
}

impl OperationRow {
    /// An operation with its moves and those of its children, each once.
    fn new(o: &Operation, all: &[Operation]) -> Self {
        let children = all.iter().filter(|c| c.parent == Some(o.id));
        let mut moves: Vec<MoveRow> = Vec::new();
        for m in o.moves.iter().chain(children.flat_map(|c| &c.moves)) {
            if !moves.iter().any(|seen| seen.app == m.app && seen.to == m.to) {
                let reason = m.reason.clone().unwrap_or_default();
                moves.push(MoveRow {
                    app: m.app.clone(),
                    from: m.from.clone(),
                    to: m.to.clone(),
                    stage: m.stage.clone(),
                    seconds: format!("{:.1}", m.seconds),
                    reason,
                });
            }
        }
        Self {
            id: o.id.to_string(),
            kind: o.kind.clone(),
            subject: o.subject.clone(),
            state: format!("{:?}", o.state),
            failed: matches!(o.state, OperationState::Failed | OperationState::Refused),
            message: o.message.clone(),
            reasons: o.reasons.clone(),
            plan: o.plan.map(|p| p.to_string()),
            moves,
            created: seconds(&o.created_at),
        }
    }
}

struct PlanRow {
    id: String,
    subject: String,
    state: String,
    moves: usize,
    created: String,
}

impl PlanRow {
    fn new(p: &PlanDocument) -> Self {
        Self {
            id: p.id.to_string(),
            subject: p.kind.to_string(),
            state: format!("{:?}", p.state),
            moves: p.plan.as_ref().map_or(0, |plan| plan.waves.iter().map(Vec::len).sum()),
            created: seconds(&p.created_at),
        }
    }
}

/// The page of a plan: its picture, its moves, and every candidate.
#[derive(Template)]
#[template(path = "plan.html")]
pub struct PlanPage {
    subject: String,
    state: String,
    picture: Option<String>,
    moves: Vec<MoveRow>,
    tried: Vec<String>,
    candidates: Vec<CandidateRow>,
    reason: Option<String>,
    why: Option<String>,
    operation: Option<String>,
    actions: Vec<Action>,
}

struct CandidateRow {
    app: String,
    priority: u8,
    scores: String,
    taken: bool,
    why_not: String,
}

impl PlanPage {
    /// Makes it from a plan document.
    pub fn new(document: &PlanDocument) -> Self {
        let plan = document.plan.as_ref();
        let none = document.infeasible.as_ref();
        let moves = plan.into_iter().flat_map(|p| p.waves.iter().flatten()).map(|m| MoveRow {
            app: format!("{}/{}", m.dig.composite_app, m.app),
            from: m.from.to_string(),
            to: m.to.to_string(),
            stage: String::new(),
            seconds: String::new(),
            reason: m.reason.clone(),
        });
        let tried = plan.map_or_else(|| none.map(|n| n.members.as_slice()).unwrap_or_default(), |p| p.tried.as_slice());
        let candidates = plan.map_or_else(|| none.map(|n| n.candidates.as_slice()).unwrap_or_default(), |p| p.candidates.as_slice());
        let drained = match &document.kind {
            PlanSubject::Drain(member) => Some(member.cluster()),
            PlanSubject::Newcomer(_) | PlanSubject::Relieve(_) => None,
        };
        let count = plan.map_or(0, |plan| plan.waves.iter().map(Vec::len).sum());
        let actions = match document.state {
            PlanState::Proposed => vec![Action::apply(document.id, count, drained), Action::discard(document.id)],
            _ => Vec::new(),
        };
        Self {
            reason: document.reason.clone(),
            why: document.why.clone(),
            operation: document.operation.map(|id| id.to_string()),
            actions,
            subject: document.kind.to_string(),
            state: format!("{:?}", document.state),
            picture: plan.map(|plan| super::draw(plan, &document.kind)),
            moves: moves.collect(),
            tried: tried.iter().map(|t| format!("{}: {}", t.member, t.reason)).collect(),
            candidates: candidates.iter().map(candidate).collect(),
        }
    }
}

fn candidate(c: &Candidate) -> CandidateRow {
    CandidateRow {
        app: format!("{}/{} on {}", c.dig.composite_app, c.app, c.member),
        priority: c.priority,
        scores: words::scores(c),
        taken: c.taken,
        why_not: c.why_not.as_ref().map(|w| w.detail.clone()).unwrap_or_default(),
    }
}

/// The page of an operation.
#[derive(Template)]
#[template(path = "operation.html")]
pub struct OperationPage {
    operation: OperationRow,
    finished: Option<String>,
    ended: bool,
    cancel: Option<Action>,
    changed: Vec<String>,
    steps: Vec<StepRow>,
}

struct StepRow {
    name: String,
    attempt: i32,
    started: String,
    finished: String,
    error: String,
}

impl OperationPage {
    /// The page of an operation.
    pub fn new(o: &Operation) -> Self {
        let step = |step: &OperationStep| StepRow {
            name: if step.direction == "undo" { format!("undo of {}", step.name) } else { step.name.clone() },
            attempt: step.attempt,
            started: seconds(&step.started_at),
            finished: step.finished_at.as_deref().map(seconds).unwrap_or_default(),
            error: step.error.clone().unwrap_or_default(),
        };
        Self {
            operation: OperationRow::new(o, &[]),
            finished: o.finished_at.as_deref().map(seconds),
            ended: o.finished_at.is_some(),
            cancel: (o.state == OperationState::Running).then(|| Action::cancel(o.id)),
            changed: o.changed_since_dry_run.clone(),
            steps: o.steps.iter().map(step).collect(),
        }
    }
}

/// An error as a page.
#[derive(Template)]
#[template(path = "error.html")]
pub struct ErrorPage {
    problem: ProblemDocument,
}

impl ErrorPage {
    /// The page of a problem.
    pub fn new(problem: ProblemDocument) -> Self {
        Self { problem }
    }
}

#[cfg(test)]
mod tests {
    use drover_api::agents::AgentReport;
    use serde_json::json;

    use super::*;

    #[test]
    fn overview_shows_the_agents_of_a_cluster_apart_from_its_apps() {
        let room = json!({"allocatable": {}, "requested": {}, "reserved": {}, "free": {}});
        let claim = |project: &str, app: &str| {
            json!({"claim": uuid::Uuid::nil(), "app": app, "state": "held", "requested": {}, "movable": false,
                "dig": {"id": uuid::Uuid::nil(), "project": project, "composite_app": app, "version": "v1", "name": "default"}})
        };
        let cluster: ClusterCapacity =
            serde_json::from_value(json!({"member": "onprem+a", "cluster": "a", "clusterProvider": "onprem", "priority": 1,
            "state": "Ready", "link": {"connectedSince": "2026-11-25T10:00:00.5Z", "version": "1.2.3"}, "total": room, "nodes": [], "apps": [claim("default", "web"), claim("drover:agents", "memory-guard")]}))
            .unwrap();
        let copy = AgentCopy {
            member: cluster.member.clone(),
            version: Some("1.2".into()),
            state: "Healthy".into(),
            healthy_since: None,
            reason: None,
            operation: None,
            report: Some(AgentReport { nodes: 2, watches: 9, memory_percent: Some(91), ..AgentReport::default() }),
        };
        let agent = AgentView {
            name: "memory-guard".into(),
            version: "1.2".into(),
            generation: 1,
            state: "Done".into(),
            reason: None,
            copies: vec![copy],
        };
        let page = Overview::new(&[cluster], &[agent], &[], &[], vec![]).render().unwrap();
        assert!(page.contains("agent memory-guard 1.2 Healthy: 2 nodes, 9 containers, memory 91 %"), "{page}");
        assert!(page.contains("link connected since 2026-11-25T10:00:00Z, drover-link 1.2.3"), "{page}");
        assert!(page.contains("/ui/apps/default/web/") && !page.contains("/ui/apps/drover:agents/"), "an agent has no page of an app");
    }
}
