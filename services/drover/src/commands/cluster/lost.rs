//! `drover cluster remove --force`: gives up a cluster that will never answer again.
//!
//! Order: close the cluster, so that nothing new goes there; move what may move by a drain plan, which keeps the other apps of the same
//! applications untouched; terminate and instantiate anew the applications of which something is still there; remove the cluster, which
//! frees what is left. Every step can be repeated, so that the command can be.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use drover_api::ledger::ClusterCapacity;
use drover_api::plans::{PlanDocument, PlanState};
use drover_api::scheduling::{DigRef, MemberState};
use serde_json::json;

use super::{path, until_shown};
use crate::application::operation_of;
use crate::clusters::all;
use crate::hub::segment;
use crate::session::Session;
use crate::{output, watch};

/// What `--help` adds.
pub const HELP: &str = "\
Examples:
  drover cluster remove private-a
  drover cluster remove private-a --force --dry-run    list what would be lost
  drover cluster remove private-a --force              give it up

With --force, apps that may move are moved. Applications that may not are terminated and placed anew as a whole, with empty volumes: their
data was in the cluster. Applications that fit nowhere else are terminated; `drover deploy` brings them back. If the cluster answers again
later, what it runs is unknown to Drover; delete it there.";

/// For how long the claims on the removed cluster may take to be freed.
const FREED: Duration = Duration::from_secs(60);

/// Prints what runs on the cluster.
pub fn list(session: &Session, cluster: &ClusterCapacity) -> Result<()> {
    let row = |app: &drover_api::ledger::AppRoom| {
        vec![format!("{}/{}", app.dig.composite_app, app.app), app.dig.project.clone(), output::amounts(&app.requested)]
    };
    output::print(session.format, &cluster.apps, |_| (vec!["APP", "PROJECT", "REQUESTS"], cluster.apps.iter().map(row).collect()))
}

/// Gives the cluster up and removes it.
pub async fn remove(session: &Session, cluster: &ClusterCapacity) -> Result<()> {
    let name = &cluster.cluster;
    if cluster.state == MemberState::Ready {
        bail!("{name} is Ready; --force is for clusters that do not answer. Empty it instead: `drover plan drain {name}`");
    }
    let order = json!({"reason": "given up: it is being removed by force", "abandoned": true});
    session.client.put(&format!("{}/cordon", path(cluster)), &order).await?;
    until_shown(session, cluster, true).await?;
    for app in &cluster.apps {
        eprintln!("  {}/{} of {} ran there", app.dig.composite_app, app.app, app.dig.project);
    }
    if !cluster.apps.is_empty() {
        move_movable(session, cluster).await?;
        for group in left(session, cluster).await? {
            place_anew(session, &group).await?;
        }
    }
    super::remove(session, cluster).await?;
    let freed = async {
        while all(session).await?.iter().any(|shown| shown.member == cluster.member) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    };
    match tokio::time::timeout(FREED, freed).await {
        Ok(freed) => freed,
        Err(_) => bail!("{name} is removed, but not all of its claims are freed yet; `drover get clusters` lists it until they are"),
    }
}

/// Moves by a drain plan what may move, if all of it can.
async fn move_movable(session: &Session, cluster: &ClusterCapacity) -> Result<()> {
    let wish = json!({"kind": "drain", "clusterProvider": cluster.provider, "cluster": cluster.cluster});
    let plan: PlanDocument = serde_json::from_value(session.client.post("/v2/plans", Some(&wish)).await?.body)?;
    if plan.state != PlanState::Proposed {
        return Ok(());
    }
    let answer = session.client.post(&format!("/v2/plans/{}/apply", plan.id), None).await?;
    let operation = watch::follow(&session.client, &operation_of(&answer)?).await?;
    eprintln!("  {}: {}", operation.subject, operation.message);
    Ok(())
}

/// The groups of which something still serves from the cluster.
async fn left(session: &Session, cluster: &ClusterCapacity) -> Result<Vec<DigRef>> {
    let clusters = all(session).await?;
    let apps = clusters.iter().filter(|shown| shown.member == cluster.member).flat_map(|shown| &shown.apps);
    let held = apps.filter(|app| app.state == drover_api::scheduling::ClaimState::Held);
    let groups: BTreeMap<_, _> = held.map(|app| (app.dig.id, app.dig.clone())).collect();
    Ok(groups.into_values().collect())
}

/// Terminates a group, and instantiates it again where it may run and fits.
async fn place_anew(session: &Session, group: &DigRef) -> Result<()> {
    let path = format!(
        "/v2/projects/{}/composite-apps/{}/{}/deployment-intent-groups/{}",
        segment(&group.project),
        segment(&group.composite_app),
        segment(&group.version),
        segment(&group.name)
    );
    let verb = async |verb: &str| {
        let answer = session.client.post(&format!("{path}/{verb}"), None).await?;
        watch::to_success(&session.client, &operation_of(&answer)?).await
    };
    verb("terminate").await?;
    session.client.post(&format!("{path}/approve"), None).await?;
    match verb("instantiate").await {
        Ok(_) => eprintln!("  {} of {} is placed anew, with empty volumes", group.composite_app, group.project),
        Err(error) => {
            eprintln!("  {} of {} is terminated, because it could not be placed anew: {error:#}", group.composite_app, group.project)
        }
    }
    Ok(())
}
