//! `drover autoscale explain` and `table`: what the agent of a cluster decided, why, and what it learned. Reads that from the cluster's API
//! server, so neither Drover nor the agent needs to run.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use drover_autoscaler::agent::tables;
use drover_autoscaler::policy::{ScalingPolicy, TABLE_CHANGED};
use drover_autoscaler::status::ScalingPolicyStatus;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::globals::Format;
use crate::output;

/// A ScalingPolicy and its cluster.
#[derive(Args, Clone, Debug)]
pub struct PolicyArgs {
    /// Name of the ScalingPolicy.
    pub name: String,
    /// Its cluster.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// A namespace of a cluster.
#[derive(Args, Clone, Debug)]
pub struct PlaceArgs {
    /// Its namespace.
    #[arg(long, short, default_value = "default", value_name = "NAMESPACE")]
    pub namespace: String,
    /// Kubeconfig of the cluster [default: the one that kubectl uses].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
}

/// `drover autoscale table …`.
#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Print a learned Q-table, as a file from which another policy can start.
    #[command(
        disable_version_flag = true, // --version is the table's
        after_help = "Example:\n  drover autoscale table export web -n shop > table.json\n  kubectl create configmap web-table --from-file=table.json"
    )]
    Export {
        /// The policy.
        #[command(flatten)]
        policy: PolicyArgs,
        /// Version [default: the current one].
        #[arg(long)]
        version: Option<u64>,
    },
    /// List the stored versions.
    Versions(PolicyArgs),
    /// Make an earlier version the current one, under a new number. A learner that the guard had switched off is used again.
    Rollback {
        /// The policy.
        #[command(flatten)]
        policy: PolicyArgs,
        /// Version to go back to.
        #[arg(long, value_name = "VERSION")]
        to: u64,
    },
}

impl PlaceArgs {
    pub(super) async fn client(&self) -> Result<Client> {
        let file = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?,
            None => Kubeconfig::read().context("no kubeconfig; give --kubeconfig")?,
        };
        let options = KubeConfigOptions { context: self.context.clone(), ..Default::default() };
        let config = kube::Config::from_custom_kubeconfig(file, &options).await.context("the kubeconfig cannot be used")?;
        Ok(Client::try_from(config)?)
    }
}

impl PolicyArgs {
    async fn client(&self) -> Result<Client> {
        self.place.client().await
    }

    async fn policy(&self, client: &Client) -> Result<ScalingPolicy> {
        let api: Api<ScalingPolicy> = Api::namespaced(client.clone(), &self.place.namespace);
        let policy = api.get_opt(&self.name).await.context("the ScalingPolicy cannot be read; is deploy/autoscaler/crd.yaml applied?")?;
        policy.with_context(|| {
            format!("no ScalingPolicy {} in {}; `kubectl get scalingpolicies -A` lists them", self.name, self.place.namespace)
        })
    }

    async fn learned(&self, client: &Client) -> Result<(Api<ConfigMap>, ConfigMap)> {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &self.place.namespace);
        let name = tables::name(&self.name);
        let map = api.get_opt(&name).await.with_context(|| format!("ConfigMap {name} cannot be read"))?;
        let map =
            map.with_context(|| format!("no ConfigMap {name} in {}: this policy has not learned anything yet", self.place.namespace))?;
        Ok((api, map))
    }
}

/// `drover autoscale explain`.
///
/// # Errors
/// The policy cannot be read.
pub async fn explain(args: &PolicyArgs, format: Format) -> Result<()> {
    let policy = args.policy(&args.client().await?).await?;
    match format {
        Format::Table | Format::Wide => output::write_stdout(&story(&policy, format == Format::Wide)?),
        Format::Json | Format::Yaml => output::print(format, &policy.status, |_| (Vec::new(), Vec::new())),
    }
}

/// `drover autoscale table …`.
///
/// # Errors
/// There is no such table, or the cluster does not let it be read or written.
pub async fn table(command: TableCommand, format: Format) -> Result<()> {
    match command {
        TableCommand::Export { policy, version } => {
            let (_, map) = policy.learned(&policy.client().await?).await?;
            let version = version.or(tables::current(&map)).context("the ConfigMap does not say which version is current")?;
            let table = tables::version(&map, version).map_err(anyhow::Error::msg)?;
            output::write_stdout(&serde_json::to_string(&table)?)
        }
        TableCommand::Versions(policy) => {
            let (_, map) = policy.learned(&policy.client().await?).await?;
            let current = tables::current(&map);
            output::print(format, &tables::versions(&map), |_| {
                let mark = |version: &u64| if current == Some(*version) { "current" } else { "" }.to_owned();
                (vec!["VERSION", ""], tables::versions(&map).iter().map(|version| vec![version.to_string(), mark(version)]).collect())
            })
        }
        TableCommand::Rollback { policy, to } => {
            let client = policy.client().await?;
            let (api, mut map) = policy.learned(&client).await?;
            let table = tables::version(&map, to).map_err(anyhow::Error::msg)?;
            let version = tables::put(&mut map, &table).map_err(anyhow::Error::msg)?;
            let name = tables::name(&policy.name);
            match api.replace(&name, &PostParams::default(), &map).await {
                Err(kube::Error::Api(status)) if status.code == 409 => bail!("the agent changed the ConfigMap at the same time; try again"),
                other => other.context("the ConfigMap cannot be written")?,
            };
            let note = json!({"metadata": {"annotations": {TABLE_CHANGED: version.to_string()}}});
            let policies: Api<ScalingPolicy> = Api::namespaced(client, &policy.place.namespace);
            policies
                .patch(&policy.name, &PatchParams::default(), &Patch::Merge(&note))
                .await
                .context("the rollback is stored, but the ScalingPolicy could not be annotated, so the agent does not know of it")?;
            output::write_stdout(&format!("version {to} is now the current version, as version {version}"))
        }
    }
}

fn story(policy: &ScalingPolicy, wide: bool) -> Result<String> {
    let scaling = &policy.spec.scaling;
    let mut lines = vec![format!(
        "{} {}: {:?} in mode {:?}, {} to {} replicas",
        scaling.target.kind, scaling.target.name, scaling.policy, scaling.mode, scaling.min_replicas, scaling.max_replicas
    )];
    let Some(status) = &policy.status else {
        lines.push("no agent has read this policy yet; check that one runs and watches this namespace".to_owned());
        return Ok(lines.join("\n"));
    };
    if status.observed_generation != policy.metadata.generation {
        lines.push("the agent has not read the latest change of this policy yet; the following is about an earlier version".to_owned());
    }
    lines.extend(decision(status));
    for condition in &status.conditions {
        let mark = if condition.status == "True" { "ok " } else { "NO " };
        lines.push(format!("  {mark} {} ({}): {}", condition.kind, condition.reason, condition.message));
    }
    if let Some(table) = &status.table {
        lines.push(format!("learned table: version {} in ConfigMap {}", table.version, table.config_map));
    }
    if !status.history.is_empty() {
        lines.push("changes, newest first:".to_owned());
    }
    for change in &status.history {
        let done = if change.done { "" } else { " (recommended)" };
        lines.push(format!("  {}  {} -> {}{done}  {}: {}", change.at, change.from, change.to, change.reason, change.message));
    }
    if let (Some(record), true) = (&status.last_decision, wide) {
        lines.push(format!("the last decision in full:\n{}", serde_json::to_string_pretty(record)?));
    }
    Ok(lines.join("\n"))
}

/// The last decision, and the number of replicas after each limit.
fn decision(status: &ScalingPolicyStatus) -> Vec<String> {
    let (Some(at), Some(message)) = (status.decided_at, &status.message) else { return vec!["no decision yet".to_owned()] };
    let reason = status.reason.as_deref().unwrap_or("?");
    let mut lines = vec![format!("at {at}: {message} ({reason})")];
    let record = status.last_decision.as_ref().unwrap_or(&Value::Null);
    let steps = ["raw", "stabilized", "rateLimited", "bounded", "want"];
    let shown: Vec<String> = steps.iter().filter_map(|step| Some(format!("{step} {}", record.get(step)?.as_i64()?))).collect();
    if !shown.is_empty() {
        lines.push(format!("  {}", shown.join(" -> ")));
    }
    lines
}
