//! Memory and CPU of both agents as Drover pushes them: `drover agents set` to a cluster with a real node, where they run in pods with the
//! limits of their manifests.
//!
//! Needs root, for the kubelet. The autoscaler decides about workloads of real pods; the memory guard is in mode apply and watches all
//! containers of the node. How much more they need with more work is measured by `autoscaler` and `memory-guard`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use drover_report::{Check, Report, Table};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, api::DynamicObject};
use serde_json::{Value, json};

use super::process::beside;
use super::stack::{Stack, folder};
use super::{Size, cell, machine, world};
use crate::dev::kube as local;

/// Name and version of the image that [`image`] writes.
pub const IMAGE: &str = "drover.local/drover";
pub const VERSION: &str = "bench";
/// Workloads of one pod each, with a policy.
const WORKLOADS: usize = 20;
const ARCHIVER: &str = include_str!("../../../../deploy/local-kube/images/mkimage.py");

/// Measures both agents.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    if size == Size::Small || !nix::unistd::geteuid().is_root() {
        report.finding("agents: not measured, it needs root and minutes (a real kubelet)".to_owned());
        return Ok(());
    }
    let folder = folder()?;
    let image = image(folder.path(), &["drover-autoscaler", "drover-memory-guard"])?;
    let (cluster, down) = local::up_on_a_real_node("pushed", image, folder.path().join("kube")).await?;
    let measured = on(&[cluster.kubeconfig], report).await;
    drop(down);
    measured
}

async fn on(kubeconfigs: &[PathBuf], report: &mut Report) -> Result<()> {
    let stack = Stack::over(folder()?, None, kubeconfigs, 1, 1, |_| Vec::new()).await?;
    for (agent, settings) in [("autoscaler", json!({})), ("memory-guard", json!({"MEMGUARD_MODE": "apply"}))] {
        let spec = json!({"version": VERSION, "image": IMAGE, "on": [{}], "healthySeconds": 1, "settings": settings});
        stack.client.put(&format!("/v2/agents/{agent}"), &json!({"metadata": {"name": agent}, "spec": spec})).await?;
    }
    let healthy = async || {
        let list: Value = stack.client.get("/v2/agent-copies").await?;
        let copies = list["items"].as_array().into_iter().flatten().flat_map(|agent| agent["copies"].as_array().into_iter().flatten());
        Ok((copies.filter(|copy| copy["state"] == "Healthy").count() == 2).then_some(()))
    };
    world::until(Duration::from_secs(300), healthy).await.context("the agents do not become healthy")?;
    workloads(kubeconfigs.first().context("there is a cluster")?).await?;
    // Until the images are started and the agents have seen everything.
    tokio::time::sleep(Duration::from_secs(60)).await;

    let parts = [
        ("autoscaler, the one that acts or waits", "drover-autoscaler", "agent"),
        ("memory guard", "drover-memory-guard", "run"),
        ("its dead man's switch", "drover-memory-guard", "watchdog"),
    ];
    let mut table = Table::new("agents-as-pushed", ["process", "workloads", "memory, most [MiB]", "CPU [% of a core]"]);
    let mut worst = [[0.0_f64; 2]; 3];
    let processes: Vec<(usize, u32)> = parts
        .iter()
        .enumerate()
        .flat_map(|(at, (_, program, role))| pods_of(program, role).into_iter().map(move |pid| (at, pid)))
        .collect();
    for (at, (name, ..)) in parts.iter().enumerate() {
        ensure!(processes.iter().any(|(of, _)| *of == at), "no process of {name} runs in a pod");
    }
    let (began, mut resident) = (Instant::now(), vec![0.0_f64; processes.len()]);
    let before: Vec<f64> = processes.iter().map(|(_, pid)| Ok(machine::usage(*pid)?.cpu)).collect::<Result<_>>()?;
    while began.elapsed() < Duration::from_secs(120) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for ((_, pid), most) in processes.iter().zip(&mut resident) {
            *most = most.max(machine::usage(*pid)?.resident);
        }
    }
    for (((at, pid), before), resident) in processes.iter().zip(before).zip(resident) {
        let busy = 100.0 * (machine::usage(*pid)?.cpu - before) / began.elapsed().as_secs_f64();
        table.row([parts[*at].0.to_owned(), WORKLOADS.to_string(), cell(resident), cell(busy)]);
        worst[*at] = [worst[*at][0].max(resident), worst[*at][1].max(busy)];
    }
    report.tables.push(table);
    for (what, at, most) in [("autoscaler", 0, 30.0), ("memory guard", 1, 15.0)] {
        report.checks.push(Check::at_most(format!("{what} as pushed, memory"), most, worst[at][0], "MiB"));
        report.checks.push(Check::at_most(format!("{what} as pushed, of a core"), 1.0, worst[at][1], "%"));
    }
    Ok(())
}

/// Creates workloads with policies that are decided about every two seconds.
async fn workloads(kubeconfig: &Path) -> Result<()> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let client = Client::try_from(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?;
    for at in 0..WORKLOADS {
        let (name, labels) = (format!("app-{at}"), json!({"app": format!("app-{at}")}));
        let container = json!({"name": "app", "image": format!("{IMAGE}:{VERSION}"), "command": ["/bin/drover-autoscaler", "demo-app"],
            "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}}});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": 1,
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
        let policy = json!({"apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": name}, "spec": {
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "policy": "kpa", "mode": "apply", "minReplicas": 1,
            "maxReplicas": 2}});
        for (path, object) in [("apis/apps/v1", deployment), ("apis/drover.io/v1alpha1", policy)] {
            let plural = if path.starts_with("apis/apps") { "deployments" } else { "scalingpolicies" };
            let request = http::Request::post(format!("/{path}/namespaces/default/{plural}"))
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(object.to_string().into_bytes())?;
            client.request::<DynamicObject>(request).await.with_context(|| format!("{plural} {name} cannot be created"))?;
        }
    }
    Ok(())
}

/// The processes of this program in this role that run in pods.
fn pods_of(program: &str, role: &str) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |pid: &u32| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let line = read("cmdline");
        let mut words = line.split('\0');
        words.next().is_some_and(|first| first.ends_with(program)) && words.next() == Some(role) && read("cgroup").contains("pod")
    };
    pids.filter(is_one).collect()
}

/// Writes an archive with these programs of this build, without debug information, and the libraries that they load. The first is its entry point.
///
/// # Errors
/// A program is not built, or a tool is missing.
pub fn image(folder: &Path, programs: &[&str]) -> Result<PathBuf> {
    let [script, archive] = ["mkimage.py", "image.tar"].map(|name| folder.join(name));
    std::fs::write(&script, ARCHIVER)?;
    let mut files = Vec::new();
    for name in programs {
        let (program, stripped) = (beside(name)?, folder.join(name));
        output(Command::new("strip").arg("-o").arg(&stripped).arg(&program))?;
        files.push(format!("{}=/bin/{name}", stripped.display()));
        let linked = output(Command::new("ldd").arg(&program))?;
        files.extend(linked.split_whitespace().filter(|word| word.starts_with('/')).map(|library| format!("{library}={library}")));
    }
    files.sort();
    files.dedup();
    let entry = format!("/bin/{}", programs.first().context("an image needs a program")?);
    output(Command::new("python3").arg(&script).arg(&archive).args([&format!("{IMAGE}:{VERSION}"), &entry]).args(files))?;
    Ok(archive)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} cannot be run"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
