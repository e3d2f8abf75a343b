//! The registered clusters, as every command asks for them.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use drover_api::ledger::ClusterCapacity;
use serde_json::Value;

use crate::hub::segment;
use crate::session::Session;

/// All clusters, most preferred first.
///
/// # Errors
/// The request fails.
pub async fn all(session: &Session) -> Result<Vec<ClusterCapacity>> {
    session.client.read(session.client.api.cluster_capacity_list(Some("capacity"))).await
}

/// The cluster called `name` or `provider/name`.
///
/// # Errors
/// No cluster or several clusters have that name, or the request fails.
pub async fn find(session: &Session, name: &str) -> Result<ClusterCapacity> {
    let clusters = all(session).await?;
    let known = clusters.iter().map(|c| format!("{}/{}", c.provider, c.cluster)).collect::<Vec<_>>().join(", ");
    let mut found: Vec<_> = clusters
        .into_iter()
        .filter(|c| c.cluster == name || format!("{}/{}", c.provider, c.cluster) == name || c.member.0 == name)
        .collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => bail!("no cluster is called {name}; registered are: {known}"),
        _ => bail!("several providers have a cluster {name}; give it as provider/{name} ({known})"),
    }
}

/// The labels of each cluster, in no particular order of the clusters.
///
/// # Errors
/// A request fails.
pub async fn labels(session: &Session, clusters: &[ClusterCapacity]) -> Result<Vec<Vec<String>>> {
    let mut all = Vec::with_capacity(clusters.len());
    for provider in clusters.iter().map(|cluster| cluster.provider.as_str()).collect::<BTreeSet<_>>() {
        let path = format!("/v2/cluster-providers/{}/clusters?withLabels=true", segment(provider));
        let listed: Value = session.client.get(&path).await?;
        for cluster in listed.as_array().into_iter().flatten() {
            let labels = cluster["labels"].as_array().into_iter().flatten().filter_map(|label| label["clusterLabel"].as_str());
            all.push(labels.map(str::to_owned).collect());
        }
    }
    Ok(all)
}

/// Checks that a cluster has this label.
///
/// # Errors
/// None has it, or a request fails.
pub async fn have_label(session: &Session, clusters: &[ClusterCapacity], label: &str) -> Result<()> {
    let known: BTreeSet<String> = labels(session, clusters).await?.into_iter().flatten().collect();
    let told = match known.is_empty() {
        true => "no cluster has any; `drover cluster add … --label LABEL` gives one".to_owned(),
        false => format!("labels of clusters are: {}", known.iter().cloned().collect::<Vec<_>>().join(", ")),
    };
    ensure!(known.contains(label), "no cluster has the label {label}; {told}");
    Ok(())
}
