//! Restart of all services with 1,000 apps on each of 100 members: time until everything is watched again. A restart must not write to any
//! member.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use drover_report::{Check, Report, Table};
use serde_json::Value;

use super::process::{Members, Simulated};
use super::stack::Stack;
use super::world::{self, App};
use super::{Size, cell};

const PROVIDERS: usize = 1;

/// Measures the restarts.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let (members, nodes, apps, rounds) = size.of((100, 20, 1_000, 3), (3, 2, 3, 1));
    let spec = Members { room: 1_000, ..Members::new(members, nodes).with_cpu(64) };
    let mut stack = Stack::simulated(spec, PROVIDERS, |_| vec!["all".to_owned()]).await?;
    let began = Instant::now();
    world::each(apps, async |at| {
        let app = App::new(format!("app-{at:04}"), world::all_with("all", PROVIDERS), 1);
        app.prepare(&stack.client).await?;
        app.deploy(&stack.client).await
    })
    .await?;
    let placed = began.elapsed().as_secs_f64();
    report.finding(format!(
        "restart: {apps} apps on each of {members} members after {placed:.0} s, {:.0} bindings/s",
        (apps * members) as f64 / placed
    ));

    let mut table = Table::new("restart", ["round", "everything watched [s]", "writes to members", "CPU s: drover", "drover [MiB]"]);
    for round in 0..rounds {
        let simulated = stack.simulated.as_ref().context("simulated members")?;
        let before = at_rest(simulated).await?;
        let began = stack.restart().await?;
        world::until(Duration::from_secs(600), async || Ok((ready(&stack).await? == apps * members).then_some(()))).await?;
        let took = began.elapsed().as_secs_f64();
        let after = revisions(stack.simulated.as_ref().context("simulated members")?).await?;
        ensure!(before.len() == after.len(), "a member is missing");
        let writes: u64 = before.iter().zip(&after).map(|(before, after)| after - before).sum();
        let usage = stack.drover.usage()?;
        table.row([round.to_string(), cell(took), writes.to_string(), cell(usage.cpu), cell(usage.resident)]);
        report.checks.push(Check::at_most(format!("restart {round} with {} bindings", apps * members), 30.0, took, "s"));
        report.checks.push(Check::at_most(format!("writes to members by restart {round}"), 0.0, writes as f64, ""));
    }
    report.tables.push(table);
    Ok(())
}

/// Number of bindings that Drover reports as Ready. Listing 100,000 takes a second of CPU, so it waits before each request.
async fn ready(stack: &Stack) -> Result<usize> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let apps: Value = match stack.client.find("/v2/apps").await {
        Ok(found) => found.unwrap_or_default(),
        // The gateway starts before the services behind it.
        Err(_) => return Ok(0),
    };
    let bindings = apps["items"].as_array().into_iter().flatten().flat_map(|app| app["bindings"].as_array().into_iter().flatten());
    Ok(bindings.filter(|binding| binding["phase"] == "Ready").count())
}

/// The resource versions when nothing is written any more: the controllers of a member go on for a moment after its apps are Ready.
async fn at_rest(simulated: &Simulated) -> Result<Vec<u64>> {
    world::until(Duration::from_secs(60), async || {
        let before = revisions(simulated).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = revisions(simulated).await?;
        Ok((before == after).then_some(after))
    })
    .await
}

/// The resource version of each member, which every write to it increments.
async fn revisions(simulated: &Simulated) -> Result<Vec<u64>> {
    let http = reqwest::Client::new();
    let mut all = Vec::new();
    for file in &simulated.kubeconfigs {
        let text = tokio::fs::read_to_string(file).await?;
        let field = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
        let (server, token) = (field("server:").context("a server")?, field("token:").context("a token")?);
        let list: Value = http.get(format!("{server}/api/v1/namespaces")).bearer_auth(token).send().await?.json().await?;
        all.push(list["metadata"]["resourceVersion"].as_str().context("a revision")?.parse()?);
    }
    Ok(all)
}
