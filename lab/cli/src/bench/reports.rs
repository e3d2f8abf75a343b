//! What the reports of agents cost the hub: 1,000 members in which an autoscaler and a memory guard renew their Leases every 15 s, compared
//! with the same members before any agent is ordered.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use drover_agent::{AGENT, REPORT};
use drover_report::{Check, Report, Table};
use futures::{StreamExt, stream};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::process::Members;
use super::stack::Stack;
use super::{Size, idle, world};

const PROVIDERS: usize = 10;
/// Number of Leases that are written at the same time.
const AT_ONCE: usize = 16;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// Measures CPU at rest without and with reports.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let (members, nodes) = size.of((1_000, 5), (12, 2));
    let (settle, measured, every) = size.of((60, 120, 15), (0, 2, 1));
    let stack = Stack::simulated(Members::new(members, nodes), PROVIDERS, |_| Vec::new()).await?;
    let mut table = Table::new("reports-of-agents", idle::HEAD);
    let [_, without] = idle::rest(&stack, &format!("{members} members"), settle, measured, &mut table).await?;

    let kubeconfigs = stack.simulated.as_ref().context("the members are simulated")?.kubeconfigs.clone();
    let mut clients = Vec::with_capacity(kubeconfigs.len());
    for file in &kubeconfigs {
        clients.push(client(file).await?);
    }
    renew(&clients).await?;
    // Paused: what is measured is that they are known and looked at, not how they are installed.
    let order = json!({"metadata": {"name": "autoscaler"}, "spec": {"version": "1", "on": [{}], "paused": true}});
    stack.client.put("/v2/agents/autoscaler", &order).await?;
    let guard = json!({"metadata": {"name": "memory-guard"}, "spec": {"version": "1", "on": [{}], "paused": true}});
    stack.client.put("/v2/agents/memory-guard", &guard).await?;
    world::until(Duration::from_secs(120), async || {
        let list: Value = stack.client.get("/v2/agent-copies").await?;
        let copies = list["items"].as_array().into_iter().flatten().flat_map(|agent| agent["copies"].as_array().into_iter().flatten());
        Ok((copies.filter(|copy| copy["report"].is_object()).count() == 2 * members).then_some(()))
    })
    .await
    .context("not every report is known")?;
    let renewing = tokio::spawn(async move {
        let mut ticks = interval(Duration::from_secs(every));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = renew(&clients).await {
                return error;
            }
        }
    });
    let with = format!("{members} members, two reports each per {every} s");
    let [_, busy] = idle::rest(&stack, &with, settle, measured, &mut table).await?;
    if renewing.is_finished() {
        return Err(renewing.await?.context("the Leases could not be renewed"));
    }
    renewing.abort();
    report.tables.push(table);
    report.checks.push(Check::at_most(format!("reports of the agents of {members} members, of a core"), 5.0, busy - without, "%"));
    Ok(())
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?)
}

/// Renews the Leases of both agents in all members, as the agents do.
async fn renew(clients: &[Client]) -> Result<()> {
    let written = stream::iter(clients.to_vec()).map(|client| async move {
        lease(
            &client,
            "drover-autoscaler",
            "autoscaler",
            &json!({"version": "1", "watches": 20, "undecided": 0, "unmetPods": 2,
            "unmet": [{"policy": "shop/web", "pods": 2}]}),
        )
        .await?;
        lease(
            &client,
            "drover-memory-guard-node-1",
            "memory-guard",
            &json!({"version": "1", "mode": "apply", "capacity": 8_000_000_000_u64,
            "used": 6_000_000_000_u64, "held": 1, "watches": 30, "oomKills": 0}),
        )
        .await
    });
    written.buffer_unordered(AT_ONCE).collect::<Vec<Result<()>>>().await.into_iter().collect()
}

async fn lease(client: &Client, name: &str, agent: &str, report: &Value) -> Result<()> {
    let body = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "labels": {AGENT: agent}, "annotations": {REPORT: report.to_string()}},
        "spec": {"holderIdentity": "node-1", "leaseDurationSeconds": 60,
            "renewTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()}});
    let path = format!("{LEASES}/{name}?fieldManager=drover-bench&force=true");
    let request = http::Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(body.to_string().into_bytes())?;
    client.request::<Value>(request).await.with_context(|| format!("the Lease {name} cannot be written"))?;
    Ok(())
}
