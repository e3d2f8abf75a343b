//! `drover cluster …`.

mod account;
mod args;
mod link;
mod lost;
mod role;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use drover_api::ledger::ClusterCapacity;
use drover_api::members::ClusterCheck;
use drover_api::scheduling::MemberState;
use serde_json::{Value, json};

use super::get::{GetArgs, Wanted, What};
use super::provider;
use crate::clusters::{all, find};
use crate::hub::{self, segment};
use crate::session::Session;

pub use args::ClusterCommand;

/// Runs the subcommand.
///
/// # Errors
/// A file cannot be read, there is no such cluster, or a request is refused or fails.
pub async fn run(session: &Session, command: ClusterCommand) -> Result<()> {
    match command {
        ClusterCommand::Add { name, provider, kubeconfig, labels, priority, force } => {
            let text = read(&kubeconfig)?;
            let found = check(session, &text).await?;
            if let Some(known) = &found.registered_as {
                if known.provider() == provider && known.cluster() == name {
                    bail!("{known} is registered already; `drover cluster update {name} --kubeconfig FILE` replaces its kubeconfig");
                }
                bail!("this Kubernetes cluster is registered already, as {known}; under two names its room would be given away twice");
            }
            usable(&found, force, "register it all the same")?;
            add(session, &name, &provider, text.as_bytes(), &labels, priority).await?;
            eprintln!("cluster {name} of {provider} registered");
            Ok(())
        }
        ClusterCommand::Cordon { name, reason } => {
            let found = find(session, &name).await?;
            let order = hub::body(json!({"reason": reason}))?;
            session.client.answer(session.client.api.cluster_cordon(&found.provider, &found.cluster, None, &order)).await?;
            until_shown(session, &found, true).await?;
            eprintln!("cluster {} is closed to new copies; `drover cluster uncordon {}` opens it", found.cluster, found.cluster);
            Ok(())
        }
        ClusterCommand::Uncordon { name } => {
            let found = find(session, &name).await?;
            session.client.answer(session.client.api.cluster_uncordon(&found.provider, &found.cluster, None)).await?;
            until_shown(session, &found, false).await?;
            eprintln!("cluster {} is open", found.cluster);
            Ok(())
        }
        ClusterCommand::Update { name, kubeconfig, force } => {
            let cluster = find(session, &name).await?;
            update(session, &cluster, &read(&kubeconfig)?, force).await?;
            eprintln!("the kubeconfig of {} is replaced", cluster.cluster);
            Ok(())
        }
        ClusterCommand::Kubeconfig(args) => account::run(&args).await,
        ClusterCommand::Role(args) => role::run(session, &args).await,
        ClusterCommand::Remove { name, force, dry_run } => {
            let found = find(session, &name).await?;
            match force {
                true if dry_run => return lost::list(session, &found),
                true => lost::remove(session, &found).await?,
                false => remove(session, &found).await?,
            }
            eprintln!("cluster {} removed", found.cluster);
            Ok(())
        }
        ClusterCommand::Invite(args) => link::invite(session, &args).await,
        ClusterCommand::Accept { name, fingerprint } => link::accept(session, &name, fingerprint.as_deref()).await,
        ClusterCommand::Revoke { name } => link::revoke(session, &name).await,
        ClusterCommand::List => super::get::run(session, GetArgs { what: Wanted::List(What::Clusters), name: None, watch: false }).await,
    }
}

/// Registers a cluster, and creates its provider if there is none of that name.
///
/// # Errors
/// A request fails; a provider created for this cluster is removed again if the cluster is refused.
pub async fn add(session: &Session, name: &str, provider: &str, kubeconfig: &[u8], labels: &[String], priority: Option<u8>) -> Result<()> {
    register(session, name, provider, kubeconfig, labels, priority, false).await
}

/// As [`add`]; a linked cluster is reached through its agent.
async fn register(
    session: &Session,
    name: &str,
    provider: &str,
    kubeconfig: &[u8],
    labels: &[String],
    priority: Option<u8>,
    linked: bool,
) -> Result<()> {
    let provider_path = format!("/v2/cluster-providers/{}", segment(provider));
    let known = session.client.find(&provider_path).await?.is_some();
    match priority {
        Some(priority) => provider::set(session, provider, priority).await?,
        None => session.client.ensure("/v2/cluster-providers", &json!({"metadata": {"name": provider}})).await?,
    }
    let clusters = format!("/v2/cluster-providers/{}/clusters", segment(provider));
    let mut body = json!({
        "metadata": {"name": name},
        "file": base64::engine::general_purpose::STANDARD.encode(kubeconfig),
    });
    if linked {
        body["spec"] = json!({"link": true});
    }
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

fn read(kubeconfig: &Path) -> Result<String> {
    std::fs::read_to_string(kubeconfig).with_context(|| format!("cannot read {}", kubeconfig.display()))
}

/// Asks what the kubeconfig leads to.
async fn check(session: &Session, kubeconfig: &str) -> Result<ClusterCheck> {
    let order = hub::body(json!({"kubeconfig": kubeconfig}))?;
    session.client.read(session.client.api.cluster_check(&order)).await
}

/// Refuses a cluster that cannot be used now, unless that is wanted.
fn usable(found: &ClusterCheck, force: bool, to: &str) -> Result<()> {
    if found.state == MemberState::Ready {
        return Ok(());
    }
    let what = format!("the cluster is {:?}: {}", found.state, found.reason.as_deref().unwrap_or("no reason is known"));
    if !force {
        bail!("{what}\n  next: correct the kubeconfig, or {to} with --force");
    }
    eprintln!("warning: {what}");
    Ok(())
}

/// Replaces the kubeconfig of a registered cluster, if the new one leads to the same Kubernetes cluster.
async fn update(session: &Session, cluster: &ClusterCapacity, kubeconfig: &str, force: bool) -> Result<()> {
    let path = path(cluster);
    let mut document: Value = session.client.get(&path).await?;
    document["file"] = base64::engine::general_purpose::STANDARD.encode(kubeconfig).into();
    if document["spec"]["link"] == true {
        // Only its agent reaches it: what the new one leads to is seen afterwards.
        return session.client.put(&path, &document).await.map(drop);
    }
    let found = check(session, kubeconfig).await?;
    if let Some(other) = found.registered_as.as_ref().filter(|known| **known != cluster.member) {
        bail!("this kubeconfig leads to the cluster that is registered as {other}, not to {}", cluster.member);
    }
    usable(&found, force, "replace it all the same")?;
    let status: Value = session.client.get(&format!("{path}/status")).await?;
    if let (Some(before), Some(now)) = (status["uid"].as_str(), &found.uid)
        && before != now
        && !force
    {
        bail!(
            "this kubeconfig leads to another Kubernetes cluster than {} is; what Drover runs there would be missing\n  \
             next: register it under a name of its own, or, if the cluster was built anew, add --force",
            cluster.member
        );
    }
    session.client.put(&path, &document).await.map(drop)
}

/// Longest time until placement knows that a cluster is closed or open; it usually takes milliseconds.
const KNOWN: Duration = Duration::from_secs(10);

/// Waits until decisions mind what was ordered, so that the next command finds it done.
async fn until_shown(session: &Session, cluster: &ClusterCapacity, cordoned: bool) -> Result<()> {
    let began = Instant::now();
    while all(session).await?.iter().any(|shown| shown.member == cluster.member && shown.cordoned.is_some() != cordoned) {
        if began.elapsed() > KNOWN {
            bail!("the order is stored, but placement does not know it yet; `drover get clusters` shows when it does");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn path(cluster: &ClusterCapacity) -> String {
    format!("/v2/cluster-providers/{}/clusters/{}", segment(&cluster.provider), segment(&cluster.cluster))
}

/// Removes a cluster with its labels. When the cluster cannot be removed, its labels are restored.
async fn remove(session: &Session, cluster: &ClusterCapacity) -> Result<()> {
    let path = path(cluster);
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
