//! Checks of a slot when an operation has ended, whatever was killed meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use drover_api::scheduling::ClaimState;
use drover_e2e::Member;
use kube::api::ListParams;

use super::case::Job;
use super::slot::{REVISION, Running, Slot, SlotState};
use super::stage::Stage;

/// How long restarted services may take to clean up. It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How often each Deployment of a job's apps has been created, by (app, member).
pub type Created = BTreeMap<(String, String), usize>;

/// Counts the creations in simulated members; empty with real ones.
pub fn created(stage: &Stage, slot: usize, job: Job) -> Created {
    let Some(sim) = stage.sim() else { return Created::new() };
    let slot = &stage.slots[slot];
    let apps = ["x", "ya", "yb", "little", "sa", "sb", "keep", "odd", "even"].map(|app| slot.named(app));
    let members = slot.scene(job).iter().map(|member| member.name);
    let pairs = members.flat_map(|member| apps.iter().map(move |app| (app.clone(), member)));
    pairs.map(|(app, member)| ((app.clone(), member.to_owned()), sim.created(member, "deployments.apps", "default", &app))).collect()
}

/// Waits until the slot has one of the states `outcomes`, in the ledger, in the databases and in the members. Returns that state, or what differs.
pub async fn settled(stage: &Stage, slot: usize, job: Job, outcomes: &[SlotState]) -> Result<SlotState, String> {
    let give_up = Instant::now() + TIMEOUT;
    loop {
        let mut differs = Vec::new();
        for state in outcomes {
            match holds(stage, slot, job, *state).await {
                Ok(()) => return Ok(*state),
                Err(why) => differs.push(why),
            }
        }
        if Instant::now() > give_up {
            return Err(differs.join(" | "));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Checks that each new app was created once, and that no app which stayed was created again.
pub fn made_once(before: &Created, after: &Created, was: &Running, is: &Running) -> Result<(), String> {
    for (object, times) in after {
        let times = times - before.get(object).copied().unwrap_or_default();
        let most = if was.contains(object) && is.contains(object) { 0 } else { 1 };
        if times > most {
            return Err(format!("{} was created {times} times on {}", object.0, object.1));
        }
        if times == 0 && is.contains(object) && !was.contains(object) {
            return Err(format!("{} was never created on {}", object.0, object.1));
        }
    }
    Ok(())
}

async fn holds(stage: &Stage, slot: usize, job: Job, state: SlotState) -> Result<(), String> {
    let (slot, text) = (&stage.slots[slot], |error: anyhow::Error| format!("{error:#}"));
    let wanted = slot.running(job, state);
    let scene: Vec<&str> = slot.scene(job).iter().map(|member| member.name).collect();
    let here = |member: &str| scene.contains(&cluster(member));

    let claims = stage.processes.claims().await.map_err(text)?;
    let claims: Vec<_> = claims.into_iter().filter(|claim| claim.dig.project == slot.project && here(&claim.member.0)).collect();
    if let Some(claim) = claims.iter().find(|claim| claim.state != ClaimState::Held || claim.surging) {
        return Err(format!("the claim of {} on {} is {:?}, surging: {}", claim.request.app, claim.member, claim.state, claim.surging));
    }
    let more = claims.iter().find(|claim| {
        let pods: u32 = claim.request.demand.groups.iter().map(|group| group.replicas).sum();
        pods as usize != slot.replicas(&claim.request.app, state)
    });
    if let Some(claim) = more {
        return Err(format!("the claim of {} on {} is for {:?}", claim.request.app, claim.member, claim.request.demand.groups));
    }
    same("claims", claims.iter().map(|claim| (claim.request.app.clone(), claim.member.0.clone())), &wanted)?;

    let bindings = "select app, member, role from drover_orchestrator.binding where project = $1 and role <> 'gone'";
    let rows: Vec<(String, String, String)> =
        sqlx::query_as(bindings).bind(&slot.project).fetch_all(&stage.database).await.map_err(|e| e.to_string())?;
    let rows: Vec<_> = rows.into_iter().filter(|(_, member, _)| here(member)).collect();
    if let Some((app, member, role)) = rows.iter().find(|(.., role)| role != "current") {
        return Err(format!("the binding of {app} on {member} is {role}"));
    }
    same("bindings", rows.into_iter().map(|(app, member, _)| (app, member)), &wanted)?;

    let desired = "select app, member from drover_resource_synchronizer.binding where dig ->> 'project' = $1 and not gone";
    let rows: Vec<(String, String)> =
        sqlx::query_as(desired).bind(&slot.project).fetch_all(&stage.database).await.map_err(|e| e.to_string())?;
    same("desired state", rows.into_iter().filter(|(_, member)| here(member)), &wanted)?;

    let revisions: BTreeMap<String, u32> = slot.revisions(state).into();
    for member in slot.scene(job) {
        objects(member, &wanted, &revisions, slot, state).await?;
    }
    Ok(())
}

/// Checks that the member has exactly these apps, that all their pods are ready and of these revisions, and that no pod is being deleted.
async fn objects(
    member: &Member,
    wanted: &Running,
    revisions: &BTreeMap<String, u32>,
    slot: &Slot,
    state: SlotState,
) -> Result<(), String> {
    let all = ListParams::default();
    let deployments = member.deployments().list(&all).await.map_err(|error| error.to_string())?;
    let names = deployments.items.into_iter().filter_map(|deployment| deployment.metadata.name);
    let here: Running = wanted.iter().filter(|(_, on)| on == member.name).cloned().collect();
    same(&format!("Deployments on {}", member.name), names.map(|app| (app, member.name.to_owned())), &here)?;
    let pods = member.pods().list(&all).await.map_err(|error| error.to_string())?.items;
    for pod in &pods {
        let (labels, annotations) = (pod.metadata.labels.as_ref(), pod.metadata.annotations.as_ref());
        let due = labels.and_then(|labels| labels.get("app")).and_then(|app| revisions.get(app)).map(u32::to_string);
        let found = annotations.and_then(|annotations| annotations.get(REVISION));
        if due.is_some() && due.as_ref() != found {
            return Err(format!("{:?} on {} has the revision {found:?} and should have {due:?}", pod.metadata.name, member.name));
        }
    }
    let ready = pods.iter().filter(|pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        pod.metadata.deletion_timestamp.is_none()
            && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    let (ready, all) = (ready.count(), pods.len());
    let due: usize = here.iter().map(|(app, _)| slot.replicas(app, state)).sum();
    if ready != due || all != due {
        return Err(format!("{} has {all} pods, {ready} of them ready, and should have {due}", member.name));
    }
    Ok(())
}

fn same(what: &str, found: impl Iterator<Item = (String, String)>, wanted: &Running) -> Result<(), String> {
    let mut found: Vec<(String, String)> = found.map(|(app, member)| (app, cluster(&member).to_owned())).collect();
    found.sort();
    if found.iter().eq(wanted) { Ok(()) } else { Err(format!("{what}: {found:?}, should be {wanted:?}")) }
}

/// The cluster of `<provider>+<cluster>`.
fn cluster(member: &str) -> &str {
    member.rsplit_once('+').map_or(member, |(_, cluster)| cluster)
}

/// Waits until no workflow runs and no group is held. To be called when all operations have ended.
pub async fn at_rest(stage: &Stage) -> Result<(), String> {
    let give_up = Instant::now() + TIMEOUT;
    loop {
        let left = left(stage).await;
        match left {
            Ok(()) => return Ok(()),
            Err(why) if Instant::now() > give_up => return Err(why),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn left(stage: &Stage) -> Result<(), String> {
    let count = async |what: &str, sql: &'static str| {
        let left: i64 = sqlx::query_scalar(sql).fetch_one(&stage.database).await.map_err(|error| error.to_string())?;
        if left == 0 { Ok(()) } else { Err(format!("{left} {what}")) }
    };
    count("workflows have not ended", "select count(*) from drover_orchestrator.workflow where ended_at is null").await?;
    let held = "select count(*) from drover_orchestrator.hold join drover_orchestrator.workflow on id = workflow_id where ended_at is null";
    count("groups are held", held).await
}
