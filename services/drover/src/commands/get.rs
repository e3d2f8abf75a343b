//! `drover get`: lists of apps, clusters, agents, plans, operations, moves, routes and call graphs; EMCO documents by their anchor.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use drover_api::access::{AuditEntry, AuditList};
use drover_api::agents::AgentView;
use drover_api::ledger::ClusterCapacity;
use drover_api::operations::{Operation, OperationList};
use drover_api::plans::{PlanDocument, PlanList};
use drover_api::traffic::{RouteBackendView, RouteList, RouteView};
use drover_api::words;
use serde_json::Value;

use crate::globals::Format;
use crate::hub::{self, segment};
use crate::output;
use crate::session::Session;
use crate::{agents, clusters};

/// `drover get`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  drover get apps -o wide\n  drover get operations --watch\n  drover get clusters -o json\n  \
    drover get audit                              # who did what, newest first; `drover get audit ci`: what ci did\n  \
    drover get projects/p/logical-clouds          # EMCO resources by their anchor")]
pub struct GetArgs {
    /// `apps`, `clusters`, `agents`, `plans`, `operations`, `moves`, `routes`, `call-graphs`, `audit`, or the anchor of EMCO resources.
    #[arg(value_name = "WHAT|ANCHOR", value_parser = Wanted::parse)]
    pub what: Wanted,
    /// Id or name, to show only one.
    pub name: Option<String>,
    /// Print the list again whenever it changes.
    #[arg(long, short = 'w')]
    pub watch: bool,
}

/// What `get` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    List(What),
    /// Path of an EMCO document or collection below `/v2`, and its query.
    Anchor(String),
}

impl Wanted {
    fn parse(text: &str) -> Result<Self, String> {
        const COLLECTIONS: [&str; 5] = ["projects", "cluster-providers", "controllers", "clm-controllers", "dtc-controllers"];
        if let Ok(what) = What::from_str(text, true) {
            return Ok(Self::List(what));
        }
        let anchor = text.trim_start_matches('/');
        let anchor = anchor.strip_prefix("v2/").unwrap_or(anchor);
        if anchor.contains('/') || COLLECTIONS.contains(&anchor.split('?').next().unwrap_or_default()) {
            return Ok(Self::Anchor(anchor.to_owned()));
        }
        Err(format!(
            "use apps, clusters, agents, plans, operations, moves, routes, call-graphs, audit, or an anchor such as {}",
            COLLECTIONS.join(", ")
        ))
    }
}

/// What `get` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    #[value(alias = "app")]
    Apps,
    #[value(alias = "cluster")]
    Clusters,
    #[value(alias = "agent")]
    Agents,
    #[value(alias = "plan")]
    Plans,
    #[value(alias = "operation", alias = "ops")]
    Operations,
    #[value(alias = "move")]
    Moves,
    #[value(alias = "route")]
    Routes,
    #[value(alias = "call-graph")]
    CallGraphs,
    Audit,
}

/// Prints the list; with `--watch` again after each change, until Ctrl-C.
///
/// # Errors
/// Nothing has the given name, or a request fails.
pub async fn run(session: &Session, args: GetArgs) -> Result<()> {
    if !args.watch {
        return output::write_stdout(&list(session, &args.what, args.name.as_deref()).await?);
    }
    let mut last = String::new();
    loop {
        let now = list(session, &args.what, args.name.as_deref()).await?;
        if now != last {
            output::write_stdout(&now)?;
            last = now;
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

async fn list(session: &Session, what: &Wanted, name: Option<&str>) -> Result<String> {
    let client = &session.client;
    let what = match what {
        Wanted::List(what) => *what,
        Wanted::Anchor(anchor) => return documents(session, anchor, name).await,
    };
    match what {
        What::Clusters => {
            let mut clusters = clusters::all(session).await?;
            clusters.retain(|c| name.is_none_or(|name| c.cluster == name || c.member.0 == name));
            some(&clusters, "cluster", name)?;
            // Only people read the wide table; an orchestrator that does not answer does not hide the clusters.
            let agents = if session.format == Format::Wide { agents::all(client).await.unwrap_or_default() } else { Vec::new() };
            output::render(session.format, &clusters, |wide| cluster_rows(&clusters, &agents, wide))
        }
        What::Agents => {
            let mut items = agents::all(client).await?;
            items.retain(|agent| name.is_none_or(|name| agent.name == name));
            some(&items, "agent", name)?;
            output::render(session.format, &items, |wide| agents::rows(&items, wide))
        }
        What::Apps => {
            let mut apps: Value = client.read(client.api.apps_list(None, None, None)).await?;
            let mine = |a: &Value| a["project"] == session.project.as_str() && name.is_none_or(|n| a["compositeApp"] == n || a["app"] == n);
            let items: Vec<Value> = apps["items"].take().as_array().into_iter().flatten().filter(|a| mine(a)).cloned().collect();
            some(&items, "application or app", name)?;
            output::render(session.format, &items, |wide| app_rows(&items, wide))
        }
        What::Plans => {
            let items: Vec<PlanDocument> = match name {
                Some(id) => vec![client.read(client.api.plan_get(&hub::id(id)?)).await?],
                None => client.read::<_, PlanList>(client.api.plan_list(None, None)).await?.items,
            };
            output::render(session.format, &items, |_| plan_rows(&items))
        }
        What::Audit => {
            let who = name.map(|name| format!("&who={}", segment(name))).unwrap_or_default();
            let list: AuditList = client.get(&format!("/v2/audit?limit=1000{who}")).await?;
            output::render(session.format, &list.items, |wide| audit_rows(&list.items, wide))
        }
        What::Routes => {
            let mut items = client.get::<RouteList>("/v2/routes").await?.items;
            items.retain(|r| r.project == session.project && name.is_none_or(|name| r.composite_app == name || r.name == name));
            some(&items, "route or application with a route", name)?;
            output::render(session.format, &items, |wide| route_rows(&items, wide))
        }
        What::CallGraphs => {
            let items = call_graphs(session, name).await?;
            some(&items, "call graph", name)?;
            output::render(session.format, &items, |_| call_graph_rows(&items))
        }
        What::Operations | What::Moves => {
            let items: Vec<Operation> = match name {
                Some(id) => vec![client.read(client.api.operation_get(&hub::id(id)?, None)).await?],
                None => client.read::<_, OperationList>(client.api.operations_list(None, None, None, None, None)).await?.items,
            };
            if what == What::Operations {
                return output::render(session.format, &items, |_| operation_rows(&items));
            }
            // An operation includes the moves of the operations that it started. Only the outermost ones are listed, so each move is
            // listed once.
            let roots = items.iter().filter(|o| o.parent.is_none() || name.is_some());
            let moves: Vec<_> = roots.flat_map(|o| o.moves.iter().map(move |m| (o.id, m))).collect();
            output::render(session.format, &moves.iter().map(|(_, m)| m).collect::<Vec<_>>(), |_| {
                let row = |(id, m): &(uuid::Uuid, &drover_api::operations::MoveView)| {
                    vec![
                        m.app.clone(),
                        m.from.clone(),
                        m.to.clone(),
                        m.stage.clone(),
                        format!("{:.1} s", m.seconds),
                        id.to_string(),
                        m.reason.clone().unwrap_or_default(),
                    ]
                };
                (vec!["APP", "FROM", "TO", "STAGE", "TIME", "OPERATION", "REASON"], moves.iter().map(row).collect())
            })
        }
    }
}

/// EMCO documents. They have no columns in common, so people get YAML.
async fn documents(session: &Session, anchor: &str, name: Option<&str>) -> Result<String> {
    let path = match name {
        Some(name) => format!("/v2/{}/{}", anchor.trim_end_matches('/'), segment(name)),
        None => format!("/v2/{anchor}"),
    };
    let found: Value = session.client.get(&path).await?;
    let format = if session.format == Format::Json { Format::Json } else { Format::Yaml };
    output::render(format, &found, |_| Rows::default())
}

/// An empty list is an error if a name was given.
fn some<T>(items: &[T], what: &str, name: Option<&str>) -> Result<()> {
    match name.filter(|_| items.is_empty()) {
        Some(name) => bail!("no {what} is called {name}; see `drover get` without a name"),
        None => Ok(()),
    }
}

/// Call graphs of the project, each with the composite app it belongs to.
async fn call_graphs(session: &Session, name: Option<&str>) -> Result<Vec<Value>> {
    let project = format!("/v2/projects/{}/composite-apps", segment(&session.project));
    let apps: Vec<Value> = session.client.get(&project).await?;
    let mut items = Vec::new();
    for app in apps {
        let (app, version) =
            (app["metadata"]["name"].as_str().unwrap_or_default(), app["spec"]["compositeAppVersion"].as_str().unwrap_or_default());
        let path = format!("{project}/{}/{}/call-graphs", segment(app), segment(version));
        for mut graph in session.client.get::<Vec<Value>>(&path).await? {
            if name.is_none_or(|name| name == app || graph["metadata"]["name"] == name) {
                graph["compositeApp"] = app.into();
                graph["compositeAppVersion"] = version.into();
                items.push(graph);
            }
        }
    }
    Ok(items)
}

fn call_graph_rows(items: &[Value]) -> Rows {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |graph: &Value| {
        let spec = &graph["spec"];
        let calls = spec["calls"].as_array().map_or(0, Vec::len);
        let rho = spec["rho"].as_u64().map_or_else(|| "default".to_owned(), |rho| rho.to_string());
        let version = text(&graph["compositeAppVersion"]);
        vec![
            format!("{}/{version}", text(&graph["compositeApp"])),
            text(&graph["metadata"]["name"]),
            calls.to_string(),
            rho,
            text(&spec["nodePreferences"]),
        ]
    };
    (vec!["APPLICATION", "CALL GRAPH", "CALLS", "RHO", "NODE PREFERENCES"], items.iter().map(row).collect())
}

type Rows = (Vec<&'static str>, Vec<Vec<String>>);

fn cluster_rows(clusters: &[ClusterCapacity], agents: &[AgentView], wide: bool) -> Rows {
    let mut head = vec!["NAME", "PROVIDER", "PRIORITY", "STATE", "CPU", "MEMORY", "APPS"];
    if wide {
        head.extend(["FREE", "RESERVED", "USED", "NODES", "AGE", "LINK", "AGENTS", "REASON"]);
    }
    let row = |c: &ClusterCapacity| {
        let room = &c.total;
        let mut row = vec![
            c.cluster.clone(),
            c.provider.clone(),
            c.priority.to_string(),
            state(c),
            output::percent(room.requested.cpu, room.allocatable.cpu),
            output::percent(room.requested.memory, room.allocatable.memory),
            c.apps.iter().filter(|app| !app.dig.is_agent()).count().to_string(),
        ];
        if wide {
            row.extend([
                output::amounts(&room.free),
                output::amounts(&room.reserved),
                room.used.as_ref().map_or_else(|| "-".into(), output::amounts),
                c.nodes.len().to_string(),
                c.age_ms.map_or_else(|| "unknown".into(), |ms| format!("{:.0} s", ms as f64 / 1000.0)),
                c.link.as_ref().map_or_else(|| "-".into(), words::link),
                agents_of(c, agents),
                [c.reason.clone(), c.cordoned.as_ref().map(|cordon| format!("cordoned since {}: {}", cordon.since, cordon.reason))]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join("; "),
            ]);
        }
        row
    };
    (head, clusters.iter().map(row).collect())
}

/// The agents that run in a cluster, with what they report.
fn agents_of(cluster: &ClusterCapacity, agents: &[AgentView]) -> String {
    let copies = agents.iter().flat_map(|agent| agent.copies.iter().map(move |copy| (agent, copy)));
    let here: Vec<String> = copies
        .filter(|(_, copy)| copy.member == cluster.member)
        .map(|(agent, copy)| {
            let version = copy.version.as_deref().unwrap_or("-");
            let report = copy.report.as_ref().map(|report| format!(" ({})", words::agent_report(report))).unwrap_or_default();
            format!("{} {version} {}{report}", agent.name, copy.state)
        })
        .collect();
    if here.is_empty() { "-".to_owned() } else { here.join("; ") }
}

/// As kubectl shows a cordoned node: the state of the connection, then that nothing new goes there.
fn state(cluster: &ClusterCapacity) -> String {
    let cordoned = if cluster.cordoned.is_some() { ",Cordoned" } else { "" };
    format!("{:?}{cordoned}", cluster.state)
}

fn app_rows(items: &[Value], wide: bool) -> Rows {
    let mut head = vec!["APP", "STATE", "ON", "SINCE", "OPERATION"];
    if wide {
        head.extend(["VERSION", "GROUP", "NOT READY BECAUSE"]);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |a: &Value| {
        let places = a["bindings"].as_array().into_iter().flatten();
        let places: Vec<String> = places.map(|b| format!("{} ({})", text(&b["member"]), text(&b["phase"]))).collect();
        // To the second: the fraction says nothing to people.
        let second = |b: &Value| b["since"].as_str().map(|since| format!("{}Z", since.split(['.', 'Z']).next().unwrap_or_default()));
        let since: Vec<String> = a["bindings"].as_array().into_iter().flatten().filter_map(second).collect();
        let mut row = vec![
            format!("{}/{}", text(&a["compositeApp"]), text(&a["app"])),
            text(&a["state"]),
            places.join(", "),
            since.join(", "),
            a["operation"].as_str().unwrap_or_default().to_owned(),
        ];
        if wide {
            let copies = a["bindings"].as_array().into_iter().flatten().filter_map(|b| b["reason"].as_str());
            let why: Vec<&str> = a["reason"].as_str().into_iter().chain(copies).collect();
            row.extend([text(&a["version"]), text(&a["dig"]), why.join("; ")]);
        }
        row
    };
    (head, items.iter().map(row).collect())
}

fn route_rows(items: &[RouteView], wide: bool) -> Rows {
    let mut head = vec!["ADDRESS", "APP", "SERVICE", "STATE", "ON", "REQUESTS", "FAILED"];
    if wide {
        head.extend(["NAME", "UNDER WAY", "REASON"]);
    }
    let row = |r: &RouteView| {
        let places: Vec<String> = r.backends.iter().map(|b| format!("{} ({} %)", b.cluster, b.weight)).collect();
        let sum = |of: fn(&RouteBackendView) -> u64| r.backends.iter().map(of).sum::<u64>().to_string();
        let mut row = vec![
            format!("{}://{}", r.protocol.as_str(), r.address),
            format!("{}/{}", r.composite_app, r.app),
            r.target.clone(),
            r.state.clone(),
            places.join(", "),
            sum(|b| b.requests),
            sum(|b| b.failures),
        ];
        if wide {
            row.extend([r.name.clone(), sum(|b| b.under_way), r.reason.clone().unwrap_or_default()]);
        }
        row
    };
    (head, items.iter().map(row).collect())
}

fn plan_rows(items: &[PlanDocument]) -> Rows {
    let row = |p: &PlanDocument| {
        let moves = p.plan.as_ref().map_or(0, |plan| plan.waves.iter().map(Vec::len).sum());
        vec![p.id.to_string(), format!("{:?}", p.state), p.kind.to_string(), moves.to_string(), p.policy.clone(), p.created_at.clone()]
    };
    (vec!["ID", "STATE", "FOR", "MOVES", "POLICY", "CREATED"], items.iter().map(row).collect())
}

fn operation_rows(items: &[Operation]) -> Rows {
    let row = |o: &Operation| {
        vec![o.id.to_string(), o.kind.clone(), o.subject.clone(), format!("{:?}", o.state), o.message.clone(), o.created_at.clone()]
    };
    (vec!["ID", "KIND", "SUBJECT", "STATE", "MESSAGE", "CREATED"], items.iter().map(row).collect())
}

fn audit_rows(entries: &[AuditEntry], wide: bool) -> Rows {
    let mut head = vec!["AT", "WHO", "METHOD", "PATH", "ANSWER", "FROM"];
    if wide {
        head.extend(["BY", "REQUEST", "TRACE"]);
    }
    let row = |entry: &AuditEntry| {
        let status = entry.status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        let answer = entry.code.as_ref().map_or(status.clone(), |code| format!("{status} {code}"));
        let mut row = vec![entry.at.clone(), entry.who.clone(), entry.method.clone(), entry.path.clone(), answer, entry.from.clone()];
        if wide {
            row.extend([entry.via.clone(), entry.request.clone().unwrap_or_default(), entry.trace.clone().unwrap_or_default()]);
        }
        row
    };
    (head, entries.iter().map(row).collect())
}
