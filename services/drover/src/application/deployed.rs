//! What of an application is in the clusters, object by object, as the members report it.

use anyhow::{Result, bail};
use drover_api::apps::{AppBinding, AppList};
use drover_api::status::{AppEntry, DigStatus};

use super::Application;
use crate::hub::segment;
use crate::session::Session;

/// Counts the objects that are applied, by cluster: `12 of 12 objects on onprem+private-a`. `expected` is the number of objects of the
/// manifests, if they were read here.
///
/// # Errors
/// A request fails, or an object is missing.
pub async fn objects(session: &Session, application: &Application, expected: Option<usize>) -> Result<String> {
    let status: DigStatus = session.client.get(&format!("{}/status", application.group)).await?;
    let mut by_cluster: Vec<(String, usize, usize)> = Vec::new();
    let (mut missing, mut apps) = (Vec::new(), 0);
    for app in status.apps.into_iter().flatten() {
        let AppEntry::Full(app) = app else { continue };
        apps += 1;
        for cluster in app.clusters {
            // A copy that is being removed after a move is none of the deployment.
            if cluster.resources.iter().all(|object| object.deployed_status == "Deleted" || object.deployed_status == "Pending") {
                continue;
            }
            let name = format!("{}+{}", cluster.cluster_provider, cluster.cluster);
            let applied = cluster.resources.iter().filter(|object| object.deployed_status == "Applied").count();
            let absent = cluster.resources.iter().filter(|object| object.deployed_status != "Applied");
            missing.extend(absent.map(|object| format!("{} {} on {name}", object.gvk.kind, object.name)));
            match by_cluster.iter_mut().find(|(known, ..)| *known == name) {
                Some((_, there, all)) => (*there, *all) = (*there + applied, *all + cluster.resources.len()),
                None => by_cluster.push((name, applied, cluster.resources.len())),
            }
        }
    }
    if !missing.is_empty() {
        bail!("not all objects are in the clusters: {} missing", missing.join(", "));
    }
    let counted: Vec<String> = by_cluster.iter().map(|(name, there, all)| format!("{there} of {all} objects on {name}")).collect();
    let total: usize = by_cluster.iter().map(|(_, there, _)| there).sum();
    // On several clusters each has all of them, and what Drover adds (scale to zero); apps of their own share them out.
    if let Some(expected) = expected
        && (if apps == 1 { by_cluster.iter().any(|(_, there, _)| *there < expected) } else { total < expected })
    {
        bail!("the manifests have {expected} objects, but {} are in the clusters", counted.join(", "));
    }
    Ok(counted.join(", "))
}

/// A StatefulSet with volume claims, which Kubernetes keeps.
pub struct KeepingSet {
    pub set: String,
    /// The cluster, as `<provider>+<cluster>`.
    pub member: String,
}

/// The StatefulSets of an application that have volume claims.
///
/// # Errors
/// The request fails.
pub async fn keeping_volumes(session: &Session, application: &str) -> Result<Vec<KeepingSet>> {
    let list: AppList = session.client.get(&format!("/v2/apps?project={}", segment(&session.project))).await?;
    let copies = list.items.into_iter().filter(|app| app.composite_app == application).flat_map(|app| app.bindings);
    let sets = |copy: AppBinding| {
        let member = copy.member.0;
        copy.keeping.into_iter().map(move |set| KeepingSet { set, member: member.clone() })
    };
    Ok(copies.flat_map(sets).collect())
}
