//! 1,000 members of 20 nodes: one app to 100 of them, before and after 1,000 other apps are deployed there, and memory and CPU at rest with
//! 100 bindings in each member.

use std::time::{Duration, Instant};

use anyhow::Result;
use drover_report::{Check, Report, Table};
use serde_json::json;

use super::process::Members;
use super::stack::Stack;
use super::world::{self, App};
use super::{Size, cell, idle, spread};

const PROVIDERS: usize = 10;

/// Measures the deployments and the resources at rest.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let (members, nodes, wide) = size.of((1_000, 20, 100), (12, 2, 4));
    let (rounds, apps, everywhere) = size.of((20, 1_000, 100), (2, 4, 2));
    let (settle, measured) = size.of((30, 60), (0, 1));
    let labels = move |at| if at < wide { vec!["all".to_owned(), "wide".to_owned()] } else { vec!["all".to_owned()] };
    let began = Instant::now();
    let stack = Stack::simulated(Members::new(members, nodes), PROVIDERS, labels).await?;
    report.finding(format!("fleet: {members} members registered and known after {:.0} s", began.elapsed().as_secs_f64()));
    let mut resting = Table::new("fleet-at-rest", idle::HEAD);
    idle::rest(&stack, &format!("{members} members of {nodes} nodes"), settle, measured, &mut resting).await?;

    let mut table =
        Table::new("fleet", ["one app to", "with", "p50 [s]", "p90 [s]", "p99 [s]", "CPU ms per binding: drover", "Postgres", "members"]);
    fan_out(&stack, "before", [wide, rounds], "nothing else", &mut table, report).await?;
    let intent = json!({"anyOf": (0..PROVIDERS).map(|at| json!({"clusterProvider": world::provider(at), "clusterLabel": "wide"})).collect::<Vec<_>>()});
    let app = |at| App::new(format!("there-{at:04}"), intent.clone(), 1);
    world::each(apps, async |at| {
        app(at).prepare(&stack.client).await?;
        app(at).deploy(&stack.client).await
    })
    .await?;
    fan_out(&stack, "after", [wide, rounds], &format!("{apps} apps on them"), &mut table, report).await?;
    report.tables.push(table);

    let began = Instant::now();
    for at in 0..everywhere {
        let app = App::new(format!("everywhere-{at:04}"), world::all_with("all", PROVIDERS), 1);
        app.prepare(&stack.client).await?;
        app.deploy(&stack.client).await?;
    }
    report.finding(format!("fleet: {everywhere} apps on each of {members} members after {:.0} s", began.elapsed().as_secs_f64()));
    let with = format!("{everywhere} bindings in each");
    let [resident, _] = idle::rest(&stack, &with, settle, measured, &mut resting).await?;
    report.tables.push(resting);
    let what = format!("{members} members of {nodes} nodes with {everywhere} bindings each, memory without Postgres");
    report.checks.push(Check::at_most(what, 1024.0, resident, "MiB"));
    Ok(())
}

/// Deploys `rounds` apps, one after the other, to `wide` members each. Adds a row with the latencies and the CPU per binding, and a check.
async fn fan_out(stack: &Stack, name: &str, [wide, rounds]: [usize; 2], with: &str, table: &mut Table, report: &mut Report) -> Result<()> {
    let (before, mut took): (_, Vec<Duration>) = (stack.cpu()?, Vec::new());
    for round in 0..rounds {
        let app = App::new(format!("{name}-{round:03}"), world::all_with("wide", PROVIDERS.min(wide)), 1);
        app.prepare(&stack.client).await?;
        let began = Instant::now();
        app.deploy(&stack.client).await?;
        took.push(began.elapsed());
    }
    let (cpu, _) = stack.cpu()?.since(&before);
    let [p50, p90, p99, _] = spread(&took).map(|ms| ms / 1e3);
    let each = [cpu.drover, cpu.postgres, cpu.members].map(|seconds| seconds * 1e3 / (wide * rounds) as f64);
    let mut row = vec![format!("{wide} members"), with.to_owned()];
    row.extend([p50, p90, p99].into_iter().chain(each).map(cell));
    table.row(row);
    report.checks.push(Check::at_most(format!("one app Ready on {wide} members with {with}, p90"), 2.0, p90, "s"));
    Ok(())
}
