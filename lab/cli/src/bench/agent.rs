//! Memory and CPU of the autoscaler's agent with many workloads on a real control plane and metrics of simulated pods.
//!
//! The agent is the program of the same build in the directory of this one. In the small size the control plane is that of
//! `DROVER_CONTRACT_KUBECONFIG`, if there is one.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use drover_autoscaler::policy::{ScalingPolicy, definition};
use drover_report::{Check, Report, Table};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::json;

use super::process::beside;
use super::stack::folder;
use super::{Size, cell, machine, world};
use crate::dev::kube as local;

/// Pods of each workload.
const PODS: usize = 3;
/// Seconds between two decisions about a workload.
const PERIOD: u32 = 15;

/// The agent; killed when dropped.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures memory and CPU of the agent.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let (workloads, settle, measured) = size.of((200, 90, 120), (2, 0, 1));
    let folder = folder()?;
    let given = std::env::var_os("DROVER_CONTRACT_KUBECONFIG").filter(|_| size == Size::Small).map(PathBuf::from);
    let (set, kubeconfig) = match given {
        Some(kubeconfig) => (None, kubeconfig),
        None => {
            let set = local::Set { dir: Some(folder.path().join("kube")) };
            let kubeconfig = plane(&set, workloads).await?;
            (Some(set), kubeconfig)
        }
    };
    let result = on(&kubeconfig, workloads, settle, measured, report).await;
    if let Some(set) = set {
        local::down(&local::Down { set, ..local::Down::default() }).await?;
    }
    result
}

async fn plane(set: &local::Set, workloads: usize) -> Result<PathBuf> {
    let up = local::Up {
        clusters: 1,
        names: vec!["autoscaler".to_owned()],
        nodes: u16::try_from(workloads * PODS / 90 + 1)?,
        cpu: Some("64".to_owned()),
        memory: None,
        metrics: true,
        real: false,
        images: Vec::new(),
        owner: Some(std::process::id()),
        set: set.clone(),
    };
    let clusters = local::up(&up).await.context("the control plane")?;
    Ok(clusters.into_iter().next().context("no control plane came up")?.kubeconfig)
}

async fn on(kubeconfig: &Path, workloads: usize, settle: u64, measured: u64, report: &mut Report) -> Result<()> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let client = Client::try_from(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?;
    let namespace = format!("bench-autoscaler-{}", std::process::id());
    prepare(&client, &namespace, workloads).await?;
    let agent = Command::new(beside("drover-autoscaler")?)
        .args(["agent", "--watch-namespace", &namespace, "--lease-namespace", &namespace, "--listen", "127.0.0.1:0", "--kubeconfig"])
        .arg(kubeconfig)
        .env("AUTOSCALER_LOG", "warn")
        .stdin(Stdio::null())
        .spawn()?;
    let agent = Agent(agent);
    let policies: Api<ScalingPolicy> = Api::namespaced(client.clone(), &namespace);
    // Until the agent has decided on every workload from metrics that it read.
    let all = async || {
        let list = policies.list(&ListParams::default()).await?;
        let decided = |policy: &&ScalingPolicy| policy.status.as_ref().is_some_and(|status| status.desired_replicas.is_some());
        Ok((list.items.iter().filter(decided).count() == workloads).then_some(()))
    };
    world::until(Duration::from_secs(300), all).await.context("the agent did not decide on every workload")?;
    tokio::time::sleep(Duration::from_secs(settle)).await;
    let (before, began) = (machine::usage(agent.0.id())?, Instant::now());
    let mut resident = before.resident;
    while began.elapsed() < Duration::from_secs(measured) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        resident = resident.max(machine::usage(agent.0.id())?.resident);
    }
    let after = machine::usage(agent.0.id())?;
    let busy = 100.0 * (after.cpu - before.cpu) / began.elapsed().as_secs_f64();
    let mut table = Table::new("autoscaler", ["workloads", "pods", "period [s]", "memory, most [MiB]", "CPU [% of a core]"]);
    table.row([workloads.to_string(), (workloads * PODS).to_string(), PERIOD.to_string(), cell(resident), cell(busy)]);
    report.tables.push(table);
    report.checks.push(Check::at_most(format!("the agent with {workloads} workloads, memory"), 30.0, resident, "MiB"));
    report.checks.push(Check::at_most(format!("the agent with {workloads} workloads, of a core"), 1.0, busy, "%"));
    drop(agent);
    Api::<Namespace>::all(client).delete(&namespace, &DeleteParams::background()).await?;
    Ok(())
}

/// Creates a namespace with workloads, and a policy in mode apply for each of them.
async fn prepare(client: &Client, namespace: &str, workloads: usize) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = definition();
    let name = definition.metadata.name.clone().unwrap_or_default();
    crds.patch(&name, &PatchParams::apply("drover-bench").force(), &Patch::Apply(&definition)).await?;
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &object).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let policies: Api<ScalingPolicy> = Api::namespaced(client.clone(), namespace);
    // The API server serves a new resource definition after a short delay.
    world::until(Duration::from_secs(60), async || Ok(policies.list(&ListParams::default()).await.ok().map(drop))).await?;
    for at in 0..workloads {
        let name = format!("app-{at}");
        let container = json!({"name": "app", "image": "example.com/app:1", "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}});
        let template =
            json!({"metadata": {"labels": {"app": name}, "annotations": {"kit/cpu": "50m"}}, "spec": {"containers": [container]}});
        let spec = json!({"replicas": PODS, "selector": {"matchLabels": {"app": name}}, "template": template});
        let deployment: Deployment = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        deployments.create(&PostParams::default(), &deployment).await?;
        let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}});
        let spec = json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "policy": "threshold", "mode": "apply",
            "maxReplicas": 10, "periodSeconds": PERIOD, "threshold": {"metrics": [{"type": "Resource", "resource": cpu}]},
        });
        let policy: ScalingPolicy = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        policies.create(&PostParams::default(), &policy).await?;
    }
    Ok(())
}
