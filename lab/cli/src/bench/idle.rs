//! Memory and CPU of `drover up` at rest with three members.

use std::time::Duration;

use anyhow::Result;
use drover_report::{Check, Report, Table};

use super::process::Members;
use super::stack::Stack;
use super::{Size, cell};

/// Measures memory and CPU at rest.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let (settle, measured) = size.of((30, 60), (0, 1));
    let stack = Stack::simulated(Members::new(3, 5), 1, |_| Vec::new()).await?;
    let mut table = Table::new("idle", HEAD);
    let [resident, busy] = rest(&stack, "3 members of 5 nodes", settle, measured, &mut table).await?;
    report.tables.push(table);
    report.checks.push(Check::at_most("idle with 3 members, memory without Postgres", 120.0, resident, "MiB"));
    report.checks.push(Check::at_most("idle with 3 members, of a core", 1.0, busy, "%"));
    Ok(())
}

/// Columns of [`rest`].
pub const HEAD: [&str; 5] = ["with", "drover [MiB]", "drover [% of a core]", "Postgres [%]", "members [%]"];

/// Waits `settle` seconds, measures for `measured` seconds and adds a row to the table. Returns Drover's memory in MiB and CPU in percent of
/// a core.
///
/// # Errors
/// A process has ended.
pub async fn rest(stack: &Stack, with: &str, settle: u64, measured: u64, table: &mut Table) -> Result<[f64; 2]> {
    tokio::time::sleep(Duration::from_secs(settle)).await;
    let before = stack.cpu()?;
    tokio::time::sleep(Duration::from_secs(measured)).await;
    let (cpu, took) = stack.cpu()?.since(&before);
    let resident = stack.drover.usage()?.resident;
    let share = |seconds: f64| 100.0 * seconds / took.as_secs_f64();
    let mut row = vec![with.to_owned()];
    row.extend([resident, share(cpu.drover), share(cpu.postgres), share(cpu.members)].map(cell));
    table.row(row);
    Ok([resident, share(cpu.drover)])
}
