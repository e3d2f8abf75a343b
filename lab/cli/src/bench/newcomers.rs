//! Newcomers that arrive at once at a full member: each needs one app moved. Beside it, newcomers that arrive one after another.

use std::time::Instant;

use anyhow::Result;
use drover_api::operations::{Operation, OperationState};
use drover_report::{Check, Report, Table};
use serde_json::{Value, json};

use super::process::Members;
use super::stack::Stack;
use super::world::{self, App};
use super::{Size, cell};

/// Newcomers that arrive one after another, for comparison.
const ONE_BY_ONE: usize = 5;

/// How newcomers fared.
struct Arrival {
    placed: usize,
    moves: usize,
    /// Why the others were not placed.
    refused: Vec<String>,
    /// Seconds until the last one served.
    took: f64,
    /// Seconds of the slowest one.
    slowest: f64,
    /// CPU seconds meanwhile of Drover with Postgres, and of the simulated members.
    cpu: [f64; 2],
}

/// Measures newcomers that arrive at once, each number of them beside those that arrive one after another.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let counts: &[usize] = size.of(&[1, 5, 20, 50], &[1, 2]);
    let single = arrive(size.of(ONE_BY_ONE, 1), false).await?;
    let mut table = Table::new(
        "newcomers",
        [
            "at once",
            "placed",
            "moves",
            "all Ready [s]",
            "slowest one of those one by one [s]",
            "ratio",
            "CPU of Drover and Postgres [s]",
            "CPU of members [s]",
        ],
    );
    for count in counts {
        let together = arrive(*count, true).await?;
        let ratio = together.took / single.slowest;
        let [drover, members] = together.cpu;
        let figures = [together.took, single.slowest, ratio, drover, members].map(cell);
        let mut row = vec![count.to_string(), together.placed.to_string(), together.moves.to_string()];
        row.extend(figures);
        table.row(row);
        for why in together.refused {
            report.finding(format!("of {count} at once, one was not placed: {why}"));
        }
        report.checks.push(Check::at_least(format!("placed of {count} at once"), *count as f64, together.placed as f64, ""));
        report.checks.push(Check::at_most(format!("moves for {count} at once"), 1.1 * *count as f64, together.moves as f64, ""));
        report.checks.push(Check::at_most(format!("{count} at once, beside the slowest of those one by one"), 2.0, ratio, "times"));
    }
    report.tables.push(table);
    Ok(())
}

/// So many newcomers at the first member, which is full of as many apps that may move to the second one.
async fn arrive(count: usize, at_once: bool) -> Result<Arrival> {
    let members = Members { room: u32::try_from(count)?, ..Members::new(2, 1) };
    let stack = Stack::simulated(members, 2, |_| vec!["all".to_owned()]).await?;
    let only = |at: &[usize]| {
        let clusters = at.iter().map(|at| json!({"clusterProvider": world::provider(*at), "cluster": world::cluster(*at)}));
        json!({"anyOf": clusters.collect::<Vec<Value>>()})
    };
    let app = |name: &str, at: usize, on: &[usize]| App::new(format!("{name}-{at:03}"), only(on), 1);
    world::each(count, async |at| {
        let victim = app("victim", at, &[0, 1]);
        victim.prepare(&stack.client).await?;
        victim.let_move(&stack.client).await?;
        victim.deploy(&stack.client).await
    })
    .await?;
    let newcomers: Vec<App> = (0..count).map(|at| app("newcomer", at, &[0])).collect();
    world::each(count, async |at| newcomers[at].prepare(&stack.client).await).await?;

    let (before, began) = (stack.cpu()?, Instant::now());
    let one = async |at: usize| -> Result<(Operation, f64)> {
        let began = Instant::now();
        let id = newcomers[at].instantiate(&stack.client).await?;
        Ok((world::ended(&stack.client, &id).await?, began.elapsed().as_secs_f64()))
    };
    let mut ended = Vec::new();
    if at_once {
        ended = futures::future::try_join_all((0..count).map(one)).await?;
    } else {
        for at in 0..count {
            ended.push(one(at).await?);
        }
    }
    let took = began.elapsed().as_secs_f64();
    let (cpu, _) = stack.cpu()?.since(&before);
    let (placed, refused): (Vec<&Operation>, Vec<&Operation>) =
        ended.iter().map(|(operation, _)| operation).partition(|operation| operation.state == OperationState::Succeeded);
    Ok(Arrival {
        took,
        cpu: [cpu.drover + cpu.postgres, cpu.members],
        placed: placed.len(),
        refused: refused.iter().map(|one| format!("{} ({})", one.message, one.code.as_deref().unwrap_or("no code"))).collect(),
        moves: ended.iter().flat_map(|(operation, _)| &operation.moves).filter(|one| one.stage == "done").count(),
        slowest: ended.iter().map(|(_, took)| *took).fold(0.0, f64::max),
    })
}
