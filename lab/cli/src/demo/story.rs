//! The steps of the demo: fill the preferred provider, deploy a newcomer that fits nowhere, and show how room is made for it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use drover_api::ledger::ClusterCapacity;
use drover_api::operations::{MoveView, Operation, OperationState};
use drover_api::plans::PlanDocument;
use drover_api::scheduling::MemberState;
use drover_scheduling::Amounts;
use serde_json::{Value, json};

use super::apps::{APPLICATIONS, Application, NEWCOMER, Size, newcomer_needs};
use super::load;
use super::members::Member;
use drover::application::prepare::prepare;
use drover::application::wishes::{Wishes, elements};
use drover::application::{Application as Deployment, operation_of, verb};
use drover::commands::cluster;
use drover::session::Session;
use drover::{clusters as registered, manifests, plans};
use drover::{output, watch};

const PATIENCE: Duration = Duration::from_secs(120);
const POLICY: &str = "least-busy-first";

/// Runs the steps and prints them; whether all of them succeeded. With `answer` the pods answer requests, and users send some meanwhile.
///
/// # Errors
/// A request fails, or a wait takes too long.
pub async fn tell(session: &Session, members: &[Member], answer: bool) -> Result<bool> {
    println!("Drover demo                                   web  {}", session.client.base());
    println!("  members: {}", members.first().map(|m| m.what).unwrap_or_default());
    for member in members {
        cluster::add(session, &member.name, &member.provider, &member.kubeconfig, &[], Some(member.priority)).await?;
    }
    until("all members Ready", || async {
        let clusters = registered::all(session).await?;
        let ready = clusters.iter().filter(|c| c.state == MemberState::Ready && c.age_ms.is_some()).count();
        Ok((ready == members.len()).then_some(()))
    })
    .await?;
    println!("✔ {} clusters of 2 providers     onprem (priority 1): private-a, private-b     aws (priority 5): public-c", members.len());
    policy(session).await?;

    let image = members.first().map(|m| m.image.clone()).unwrap_or_default();
    let command = members.first().map(|m| m.command).unwrap_or_default();
    let pods = Pods { image: &image, command, size: size(&registered::all(session).await?) };
    let mut users = load::Users::new()?;
    for application in &APPLICATIONS {
        let operation = bring(session, application, &pods, &[], answer.then_some(&mut users)).await?;
        quietly(session, &operation).await.with_context(|| format!("{} did not come up", application.name))?;
    }
    let count: usize = APPLICATIONS.iter().map(|a| a.apps.len()).sum();
    println!("✔ {count} apps deployed               {}  of CPU requested", fill(&registered::all(session).await?));
    until("the members to report CPU use", || async {
        let clusters = registered::all(session).await?;
        let silent = clusters.iter().flat_map(|c| &c.apps).filter(|a| a.used.is_none()).count();
        Ok((silent == 0).then_some(()))
    })
    .await?;

    if answer {
        until("the routes to serve", || async { Ok(users.are_served(session).await?.then_some(())) }).await?;
        users.begin()?;
    }
    let target = registered::find(session, "private-a").await?;
    println!(
        "→ newcomer \"{}\" must run on private-a and needs {}; private-a has {} left",
        NEWCOMER.name,
        newcomer_needs(pods.size),
        output::amounts(&target.total.free)
    );
    let began = Instant::now();
    let id = bring(session, &NEWCOMER, &pods, &["private-a"], None).await?;
    let operation = watch::follow(&session.client, &id).await?;
    let took = began.elapsed();
    if let Some(id) = operation.plan {
        let document: PlanDocument = session.client.get(&format!("/v2/plans/{id}")).await?;
        let lines = document.plan.as_ref().map(|p| plans::lines(p, false)).unwrap_or_default();
        println!("  plan {id}: {}", lines.join("\n  "));
        println!("    drover plan show {id} --why-not");
    }
    let done: Vec<String> = operation.moves.iter().map(|m| format!("{} → {} {:.1} s", m.app, m.to, m.seconds)).collect();
    if operation.state != OperationState::Succeeded {
        println!("✘ {}: {}", operation.message, operation.reasons.join("; "));
        return Ok(false);
    }
    println!("✔ moved {} · {} Ready after {:.1} s", done.join(", "), NEWCOMER.name, took.as_secs_f64());
    let held = verify(session, &operation.moves).await?;
    Ok(if answer { served(users, &operation.moves) && held } else { held })
}

/// What users of the moved apps got meanwhile.
fn served(users: load::Users, moves: &[MoveView]) -> bool {
    let moved: Vec<String> = moves.iter().map(|one| one.app.clone()).collect();
    let (served, failed, why) = users.end(&moved);
    println!("{} served {served} requests to {} meanwhile, {failed} failed", if failed == 0 { "✔" } else { "✘" }, moved.join(" and "));
    why.iter().for_each(|(app, failure)| println!("  {app}: {failure}"));
    served > 0 && failed == 0
}

/// Looks again at what the story claims.
async fn verify(session: &Session, moves: &[MoveView]) -> Result<bool> {
    let clusters = registered::all(session).await?;
    println!("  now: {}  of CPU requested", fill(&clusters));
    let homes = |app: &str| clusters.iter().filter(|c| c.apps.iter().any(|a| a.app == app)).map(|c| c.cluster.clone()).collect::<Vec<_>>();
    let mut held = true;
    let mut check = |what: &str, ok: bool| {
        if !ok {
            println!("✘ {what}");
        }
        held &= ok;
    };
    check("something moved", !moves.is_empty());
    check("the newcomer is on private-a and nowhere else", homes(NEWCOMER.name) == ["private-a"]);
    for app in APPLICATIONS.iter().flat_map(|a| a.apps) {
        check(&format!("{} runs in one place", app.name), homes(app.name).len() == 1);
    }
    let full = clusters.iter().find(|c| c.cluster == "private-a");
    check("private-a is not over-committed", full.is_some_and(|c| c.total.requested.cpu <= c.total.allocatable.cpu));
    let apps: Value = session.client.get("/v2/apps").await?;
    let late = apps["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|a| a["bindings"].as_array().is_none_or(|b| b.is_empty() || b.iter().any(|b| b["phase"] != "Ready")));
    check("every app is Ready", late.count() == 0);
    if held {
        println!("✔ every app is Ready in exactly one place");
    }
    Ok(held)
}

/// Image and size of the demo's pods.
struct Pods<'a> {
    image: &'a str,
    command: &'a [&'a str],
    size: Size,
}

/// The size that fits the smallest member; a real kubelet on a laptop may be small.
fn size(clusters: &[ClusterCapacity]) -> Size {
    let smallest = |of: fn(&Amounts) -> i64| clusters.iter().map(|c| of(&c.total.free)).min().unwrap_or_default();
    Size::for_members(&Amounts { cpu: smallest(|free| free.cpu), memory: smallest(|free| free.memory), ..Amounts::default() })
}

async fn bring(
    session: &Session,
    application: &Application,
    pods: &Pods<'_>,
    only: &[&str],
    users: Option<&mut load::Users>,
) -> Result<String> {
    let uploads = manifests::split_text(&application.manifests(pods.image, pods.command, pods.size))?;
    let clusters = registered::all(session).await?;
    let wishes = Wishes {
        any_of: elements(&clusters, &[], only.first().copied(), None)?,
        when_full: None,
        movable: Some(application.movable.map_or((false, 10), |priority| (true, priority))),
        ..Wishes::default()
    };
    let group = Deployment::new(session, application.name);
    prepare(session, &group, &uploads, &wishes).await?;
    if let Some(users) = users.filter(|_| application.movable.is_some()) {
        for app in application.apps {
            users.route(session, &group.group, application.name, app.name).await?;
        }
    }
    let verb = verb(session, &group).await?;
    operation_of(&session.client.post(&format!("{}/{verb}", group.group), None).await?)
}

/// Activates a policy that moves the least busy app first, and allows moving apps whose Services others may call by name.
async fn policy(session: &Session) -> Result<()> {
    let project = json!({"metadata": {"name": session.project}, "spec": {"allowDependants": true}});
    session.client.upsert("/v2/projects", &session.project, &project).await?;
    let spec = json!({"mode": "order", "active": true, "algorithms": [{"algorithm": "CPUUtilization"}]});
    let body = json!({"metadata": {"name": POLICY, "description": "the least busy moves first"}, "spec": spec});
    session.client.upsert(&format!("/v2/projects/{}/migration-policies", session.project), POLICY, &body).await
}

/// Waits for an operation to succeed, without printing its progress.
async fn quietly(session: &Session, id: &str) -> Result<()> {
    loop {
        let operation: Operation = session.client.get(&format!("/v2/operations/{id}?wait=30s")).await?;
        match operation.state {
            OperationState::Succeeded => return Ok(()),
            _ if watch::ended(&operation) => bail!("{}: {}", operation.message, operation.reasons.join("; ")),
            _ => {}
        }
    }
}

fn fill(clusters: &[ClusterCapacity]) -> String {
    let one = |c: &ClusterCapacity| format!("{} {}", c.cluster, output::percent(c.total.requested.cpu, c.total.allocatable.cpu));
    clusters.iter().map(one).collect::<Vec<_>>().join("  ")
}

async fn until<F>(what: &str, mut ask: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<Option<()>>>,
{
    let began = Instant::now();
    let mut said = false;
    while ask().await?.is_none() {
        if began.elapsed() > PATIENCE {
            bail!("timed out after {} s waiting for {what}", PATIENCE.as_secs());
        }
        if !said && began.elapsed() > Duration::from_secs(3) {
            eprintln!("  waiting for {what}…");
            said = true;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
