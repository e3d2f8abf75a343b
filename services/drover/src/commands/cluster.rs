//! `drover cluster …`.

use anyhow::{Context, Result, bail};
use base64::Engine;
use drover_api::ledger::ClusterCapacity;
use serde_json::{Value, json};

use super::{Session, provider};
use crate::cli::{ClusterCommand, GetArgs, What};
use crate::client::segment;

/// Runs it.
pub async fn run(session: &Session, command: ClusterCommand) -> Result<()> {
    match command {
        ClusterCommand::Add { name, provider, kubeconfig, labels, priority } => {
            let text = std::fs::read(&kubeconfig).with_context(|| format!("cannot read {}", kubeconfig.display()))?;
            add(session, &name, &provider, &text, &labels, priority).await?;
            eprintln!("cluster {name} of {provider} registered");
            Ok(())
        }
        ClusterCommand::Remove { name } => {
            let found = find(session, &name).await?;
            remove(session, &found).await?;
            eprintln!("cluster {} removed", found.cluster);
            Ok(())
        }
        ClusterCommand::List => super::get::run(session, GetArgs { what: What::Clusters, name: None, watch: false }).await,
    }
}

/// Registers a cluster, and creates its provider if there is none of that name.
///
/// # Errors
/// A request fails; a provider created for this cluster is removed again if the cluster is refused.
pub async fn add(session: &Session, name: &str, provider: &str, kubeconfig: &[u8], labels: &[String], priority: Option<u8>) -> Result<()> {
    let provider_path = format!("/v2/cluster-providers/{}", segment(provider));
    let known = session.client.find(&provider_path).await?.is_some();
    match priority {
        Some(priority) => provider::set(session, provider, priority).await?,
        None => session.client.ensure("/v2/cluster-providers", &json!({"metadata": {"name": provider}})).await?,
    }
    let clusters = format!("/v2/cluster-providers/{}/clusters", segment(provider));
    let body = json!({
        "metadata": {"name": name},
        "file": base64::engine::general_purpose::STANDARD.encode(kubeconfig),
    });
    if let Err(error) = session.client.post(&clusters, Some(&body)).await {
        // A provider created only for this cluster is removed; the deletion is refused if it has got other clusters meanwhile.
        if !known {
            let _ = session.client.delete(&provider_path).await;
        }
        return Err(error);
    }
    for label in labels {
        session.client.ensure(&format!("{clusters}/{}/labels", segment(name)), &json!({"clusterLabel": label})).await?;
    }
    Ok(())
}

/// Removes a cluster with its labels. When the cluster cannot be removed, its labels are restored.
async fn remove(session: &Session, cluster: &ClusterCapacity) -> Result<()> {
    let path = format!("/v2/cluster-providers/{}/clusters/{}", segment(&cluster.provider), segment(&cluster.cluster));
    let labels: Vec<Value> = session.client.get(&format!("{path}/labels")).await?;
    for label in labels.iter().filter_map(|label| label["clusterLabel"].as_str()) {
        session.client.delete(&format!("{path}/labels/{}", segment(label))).await?;
    }
    let removed = session.client.call(reqwest::Method::DELETE, &path, None).await;
    if removed.is_err() {
        for label in &labels {
            session.client.ensure(&format!("{path}/labels"), label).await?;
        }
    }
    removed.map(drop)
}

/// All clusters, most preferred first.
///
/// # Errors
/// The request fails.
pub async fn all(session: &Session) -> Result<Vec<ClusterCapacity>> {
    session.client.get("/v2/clusters?view=capacity").await
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
