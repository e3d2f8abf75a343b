//! The list of apps and the page of one app. Pure.

use std::collections::BTreeSet;

use askama::Template;
use drover_api::apps::{AppList, AppView};
use drover_api::ledger::{ExplainedDecision, Explanation};
use drover_api::members::{CopyEvent, CopyPod};
use drover_api::status::{AppEntry, DigStatus};
use drover_api::traffic::RouteView;
use drover_api::words::{self, Considered};
use serde::Deserialize;
use serde_json::Value;

use super::Action;
use super::view::seconds;

/// What the list of apps is restricted to. Empty texts restrict nothing.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Filter {
    /// Part of the name of the application or app.
    #[serde(default)]
    pub q: String,
    #[serde(default)]
    pub project: String,
    /// The cluster, as `<provider>+<cluster>`.
    #[serde(default)]
    pub cluster: String,
    #[serde(default)]
    pub state: String,
}

impl Filter {
    fn takes(&self, app: &AppView) -> bool {
        let name = format!("{}/{}", app.composite_app, app.app).to_lowercase();
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        name.contains(&self.q.trim().to_lowercase())
            && is(&self.project, &app.project)
            && is(&self.state, &app.state)
            && (self.cluster.is_empty() || app.bindings.iter().any(|copy| copy.member.0 == self.cluster))
    }
}

/// The list of apps.
#[derive(Template)]
#[template(path = "apps.html")]
pub struct Apps {
    filter: Filter,
    projects: BTreeSet<String>,
    clusters: BTreeSet<String>,
    states: BTreeSet<String>,
    /// Those that the filter takes.
    rows: Vec<Row>,
    total: usize,
}

struct Row {
    name: String,
    link: String,
    project: String,
    state: String,
    failed: bool,
    copies: Vec<Copy>,
    reason: String,
}

struct Copy {
    member: String,
    phase: String,
    since: String,
    reason: String,
}

impl Apps {
    /// The page of the apps that the filter takes.
    pub fn new(list: &AppList, filter: Filter) -> Self {
        let copies = list.items.iter().flat_map(|app| &app.bindings);
        Self {
            projects: list.items.iter().map(|app| app.project.clone()).collect(),
            clusters: copies.map(|copy| copy.member.0.clone()).collect(),
            states: list.items.iter().map(|app| app.state.clone()).collect(),
            rows: list.items.iter().filter(|app| filter.takes(app)).map(row).collect(),
            total: list.items.len(),
            filter,
        }
    }
}

fn row(app: &AppView) -> Row {
    Row {
        name: format!("{}/{}", app.composite_app, app.app),
        link: link(app),
        project: app.project.clone(),
        state: app.state.clone(),
        failed: app.state == "Failed",
        copies: copies(app),
        reason: app.reason.clone().unwrap_or_default(),
    }
}

fn link(app: &AppView) -> String {
    format!("/ui/apps/{}/{}/{}/{}/{}", app.project, app.composite_app, app.version, app.dig, app.app)
}

fn copies(app: &AppView) -> Vec<Copy> {
    let copy = |copy: &drover_api::apps::AppBinding| Copy {
        member: copy.member.0.clone(),
        phase: copy.phase.clone(),
        since: copy.since.as_deref().map(seconds).unwrap_or_default(),
        reason: copy.reason.clone().unwrap_or_default(),
    };
    app.bindings.iter().map(copy).collect()
}

/// What the services answer about one app. A part that cannot be read is absent, and `problems` says why.
#[derive(Default)]
pub struct Facts {
    pub explanation: Option<Explanation>,
    /// Which plan moved it to where it is, and why.
    pub moved: Option<String>,
    pub status: Option<DigStatus>,
    pub revisions: Value,
    /// Of all apps.
    pub routes: Vec<RouteView>,
    /// By cluster.
    pub pods: Vec<(String, CopyPod)>,
    pub events: Vec<(String, CopyEvent)>,
    /// The name of a container and the path of its log.
    pub logs: Vec<(String, String)>,
    pub problems: Vec<String>,
}

/// The page of an app.
#[derive(Template)]
#[template(path = "app.html")]
pub struct AppPage {
    name: String,
    state: String,
    /// Where it is and why, in one sentence.
    sentence: String,
    /// Why it, or another app there, is to be moved without a newcomer.
    suffering: Vec<String>,
    operation: Option<String>,
    copies: Vec<Copy>,
    objects: Vec<Object>,
    pods: Vec<(String, CopyPod)>,
    events: Vec<(String, CopyEvent)>,
    logs: Vec<(String, String)>,
    revisions: Vec<Revision>,
    routes: Vec<RouteView>,
    considered: Vec<Place>,
    /// If it were decided now; empty if that would be the same.
    now: Vec<Place>,
    problems: Vec<String>,
}

struct Object {
    kind: String,
    name: String,
    cluster: String,
    deployed: String,
    ready: String,
}

struct Revision {
    number: i64,
    time: String,
    kind: String,
    current: bool,
    back: Option<Action>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    member: String,
    priority: u8,
    verdict: &'static str,
    reason: String,
}

impl AppPage {
    /// The page of an app. `group` is the path of its deployment intent group.
    pub fn new(app: &AppView, group: &str, facts: Facts) -> Self {
        let considered: Vec<Place> = facts.explanation.iter().flat_map(places).collect();
        let now = facts.explanation.iter().filter_map(|explanation| explanation.now.as_ref()).flat_map(places_of);
        let now: Vec<Place> = now.collect();
        Self {
            name: format!("{}/{}", app.composite_app, app.app),
            state: app.state.clone(),
            sentence: sentence(app, facts.explanation.as_ref(), facts.moved.as_deref()),
            suffering: app.suffering.iter().map(words::suffering).collect(),
            operation: app.operation.map(|id| id.to_string()),
            copies: copies(app),
            objects: facts.status.iter().flat_map(|status| objects(status, &app.app)).collect(),
            pods: facts.pods,
            events: facts.events,
            logs: facts.logs,
            revisions: revisions(&facts.revisions, group),
            routes: facts.routes.into_iter().filter(|route| leads_to(route, app)).collect(),
            now: if now == considered { Vec::new() } else { now },
            considered,
            problems: facts.problems,
        }
    }
}

fn leads_to(route: &RouteView, app: &AppView) -> bool {
    (&route.project, &route.composite_app, &route.version, &route.group, &route.app)
        == (&app.project, &app.composite_app, &app.version, &app.dig, &app.app)
}

fn places(explanation: &Explanation) -> Vec<Place> {
    explanation.decided.as_ref().or(explanation.now.as_ref()).map(places_of).unwrap_or_default()
}

fn places_of(decided: &ExplainedDecision) -> Vec<Place> {
    let place = |Considered { member, priority, verdict, reason, .. }: Considered<'_>| Place {
        member: member.to_owned(),
        priority,
        verdict,
        reason: reason.to_owned(),
    };
    words::considered(&decided.decision).map(place).collect()
}

/// For example: `shop/web runs on onprem+private-a, where it was placed because …`.
fn sentence(app: &AppView, explanation: Option<&Explanation>, moved: Option<&str>) -> String {
    let name = format!("{}/{}", app.composite_app, app.app);
    let members: Vec<&str> = app.bindings.iter().map(|copy| copy.member.0.as_str()).collect();
    if members.is_empty() {
        let why = app.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        return format!("{name} runs nowhere; it is {}{why}.", app.state);
    }
    let here = format!("{name} is on {}", members.join(" and "));
    let Some(explanation) = explanation else { return format!("{here}.") };
    if explanation.moved {
        return match moved {
            Some(why) => format!("{here}; {why}."),
            None => format!("{here}; a plan moved it there after it was placed."),
        };
    }
    let chosen = places(explanation).into_iter().find(|place| place.verdict == "chosen" && members.contains(&place.member.as_str()));
    match chosen {
        Some(place) if !place.reason.is_empty() => format!("{here}: {}.", place.reason),
        _ => format!("{here}."),
    }
}

fn objects(status: &DigStatus, app: &str) -> Vec<Object> {
    let entries = status.apps.iter().flatten().filter_map(|entry| match entry {
        AppEntry::Full(found) if found.name == app => Some(found),
        _ => None,
    });
    let mut objects = Vec::new();
    for cluster in entries.flat_map(|entry| &entry.clusters) {
        objects.extend(cluster.resources.iter().map(|resource| Object {
            kind: resource.gvk.kind.clone(),
            name: resource.name.clone(),
            cluster: format!("{}+{}", cluster.cluster_provider, cluster.cluster),
            deployed: resource.deployed_status.clone(),
            ready: resource.ready_status.clone(),
        }));
    }
    objects
}

/// The newest first.
fn revisions(list: &Value, group: &str) -> Vec<Revision> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().into_iter().flatten();
    let runs = items.clone().any(|item| item["current"] == true);
    let revision = |item: &Value| {
        let (number, current) = (item["revision"].as_i64()?, item["current"] == true);
        let back = (runs && !current).then(|| Action::rollback(group, number));
        Some(Revision { number, time: seconds(&text(&item["time"])), kind: text(&item["kind"]), current, back })
    };
    let mut revisions: Vec<Revision> = items.filter_map(revision).collect();
    revisions.reverse();
    revisions
}

#[cfg(test)]
mod tests {
    use drover_api::apps::AppBinding;
    use drover_api::scheduling::MemberKey;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn app(name: &str, state: &str, members: &[&str]) -> AppView {
        let copy = |member: &&str| AppBinding {
            binding: Uuid::nil(),
            member: MemberKey((*member).to_owned()),
            since: None,
            phase: "Ready".into(),
            reason: None,
            scaled: vec![],
            unclaimed: None,
            bounds: vec![],
            keeping: Vec::new(),
        };
        AppView {
            project: "p".into(),
            composite_app: "shop".into(),
            version: "v1".into(),
            dig: "shop".into(),
            app: name.into(),
            state: state.into(),
            reason: None,
            operation: None,
            bindings: members.iter().map(copy).collect(),
            refused: vec![],
            suffering: vec![],
        }
    }

    #[test]
    fn filter_takes_apps_that_meet_all_of_its_parts() {
        let list = AppList { items: vec![app("web", "Instantiated", &["onprem+a"]), app("cart", "Failed", &[])] };
        let count = |filter: Filter| Apps::new(&list, filter).rows.len();
        assert_eq!(count(Filter::default()), 2);
        assert_eq!(count(Filter { q: " WEB".into(), ..Filter::default() }), 1);
        assert_eq!(count(Filter { state: "Failed".into(), q: "shop/".into(), ..Filter::default() }), 1);
        assert_eq!(count(Filter { cluster: "onprem+a".into(), state: "Failed".into(), ..Filter::default() }), 0);
    }

    #[test]
    fn sentence_says_where_and_why_not() {
        assert_eq!(sentence(&app("web", "Instantiated", &["onprem+a"]), None, None), "shop/web is on onprem+a.");
        let failed = AppView { reason: Some("no cluster has room".into()), ..app("web", "Failed", &[]) };
        assert_eq!(sentence(&failed, None, None), "shop/web runs nowhere; it is Failed: no cluster has room.");
    }

    #[test]
    fn revisions_that_do_not_run_can_be_gone_back_to() {
        let list = json!({"items": [{"revision": 1, "current": false}, {"revision": 2, "current": true}]});
        let revisions = revisions(&list, "/v2/g");
        assert_eq!(
            revisions.iter().map(|revision| (revision.number, revision.back.is_some())).collect::<Vec<_>>(),
            [(2, false), (1, true)]
        );
        assert_eq!(revisions[1].back.as_ref().unwrap().path, "/v2/g/rollback");
    }
}
