//! 1,000 apps at the same time to 10 members of 10 nodes, until all are Ready. Simulated pods start without delay.

use std::time::Instant;

use anyhow::Result;
use drover_report::{Check, Report, Table, percentile};

use super::process::Members;
use super::stack::Stack;
use super::world::{self, App};
use super::{Size, cell};

/// Measures how long the apps take to become Ready.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let (members, nodes, apps, rounds) = size.of((10, 10, 1_000, 3), (2, 2, 6, 1));
    let stack = Stack::simulated(Members::new(members, nodes), 1, |_| vec!["all".to_owned()]).await?;
    let mut table =
        Table::new("burst", ["round", "accepted [s]", "all Ready [s]", "apps/s", "CPU ms per app: drover", "Postgres", "members"]);
    let mut ready = Vec::new();
    for round in 0..rounds {
        let intent = serde_json::json!({"anyOf": [{"clusterProvider": world::provider(0), "clusterLabel": "all"}]});
        let app = |at| App::new(format!("burst-{round}-{at:04}"), intent.clone(), 1);
        let all: Vec<App> = (0..apps).map(app).collect();
        world::each(apps, async |at| all[at].prepare(&stack.client).await).await?;

        let (before, began) = (stack.cpu()?, Instant::now());
        let operations = std::sync::Mutex::new(Vec::new());
        world::each(apps, async |at| {
            let operation = all[at].instantiate(&stack.client).await?;
            operations.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(operation);
            Ok(())
        })
        .await?;
        let accepted = began.elapsed().as_secs_f64();
        let operations = operations.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        world::each(apps, async |at| world::succeeded(&stack.client, &operations[at]).await).await?;
        let took = began.elapsed().as_secs_f64();
        let (cpu, _) = stack.cpu()?.since(&before);
        ready.push(took);
        let each = [cpu.drover, cpu.postgres, cpu.members].map(|seconds| cell(seconds * 1e3 / apps as f64));
        let mut row = vec![round.to_string(), cell(accepted), cell(took), cell(apps as f64 / took)];
        row.extend(each);
        table.row(row);
    }
    report.tables.push(table);
    report.checks.push(Check::at_most(format!("burst of {apps} apps, all Ready"), 10.0, percentile(&ready, 0.5), "s"));
    Ok(())
}
