//! `drover experiment roadef`: the search of group placement on public instances of the ROADEF/EURO challenge 2012.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use drover_lab_groups::SearchBudget;
use drover_lab_groups::roadef::{InputFile, Reassignment, improve};
use drover_report::{Check, Report, Table};
use indicatif::{ProgressBar, ProgressStyle};

use super::groups::cpu;
use super::{Common, finish};
use drover::globals::Format;

/// Steps of the progress bar to a second.
const TICKS: f64 = 10.0;

/// `drover experiment roadef FILE…`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  drover experiment roadef model_a1_1.txt model_a1_2.txt --seconds 30 --out roadef/")]
pub struct RoadefArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: Common,
    /// Model files, for example model_a1_1.txt; the assignment (assignment_a1_1.txt) is read from the same directory.
    #[arg(required = true, value_name = "FILE")]
    pub models: Vec<PathBuf>,
    /// CPU seconds for each file; the challenge gave 300 seconds of two cores.
    #[arg(long, default_value_t = 60.0, value_parser = positive)]
    pub seconds: f64,
    /// Best published cost of each file, in the order of the files; the report then gives the gap to it.
    #[arg(long, value_name = "COST")]
    pub best: Vec<i64>,
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|s: &f64| s.is_finite() && *s > 0.0).ok_or_else(|| "must be a number of seconds above 0".to_owned())
}

/// Improves the assignment of each file, and delivers the report; the exit code of the command.
///
/// # Errors
/// An option is out of range, or a file cannot be read or written or is not an instance of the challenge.
pub fn run(args: &RoadefArgs, format: Format) -> Result<ExitCode> {
    if args.best.len() > args.models.len() {
        bail!(
            "--best is given {} times for {} files; give it at most once per file, in the order of the files",
            args.best.len(),
            args.models.len()
        );
    }
    let bar = ProgressBar::new((args.seconds * args.models.len() as f64 * TICKS) as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {msg}, {eta} left").unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut report = Report::new("roadef");
    let mut table = Table::new(
        "roadef",
        [
            "file",
            "machines",
            "processes",
            "first",
            "found",
            "load",
            "balance",
            "moves",
            "best published",
            "gap %",
            "moves looked at",
            "CPU s",
        ],
    );
    for (i, path) in args.models.iter().enumerate() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        bar.set_message(name.clone());
        let instance = read(path)?;
        if let Some(fault) = instance.faults(&instance.initial).first() {
            bail!("{}: the first assignment breaks a constraint: {fault}", path.display());
        }
        let began = cpu();
        let found =
            improve(&instance, &SearchBudget::Seconds(args.seconds, watched(&bar, began, i as f64 * args.seconds)), args.common.seed);
        let seconds = cpu() - began;
        let (first, cost, faults) = (instance.cost(&instance.initial), instance.cost(&found.at), instance.faults(&found.at));
        let best = args.best.get(i).copied();
        let gap = best.map_or_else(|| "-".to_owned(), |b| format!("{:.3}", 100.0 * (cost.total() - b) as f64 / b.max(1) as f64));
        report.finding(format!(
            "{name}: {} after {seconds:.0} s of CPU, from {}; gap to the best published: {gap} %",
            cost.total(),
            first.total()
        ));
        table.row([
            name.clone(),
            instance.machines.len().to_string(),
            instance.processes.len().to_string(),
            first.total().to_string(),
            cost.total().to_string(),
            cost.load.to_string(),
            cost.balance.to_string(),
            (cost.process_moves + cost.service_moves + cost.machine_moves).to_string(),
            best.map_or_else(|| "-".to_owned(), |b| b.to_string()),
            gap,
            found.effort.to_string(),
            format!("{seconds:.1}"),
        ]);
        let sound = faults.is_empty() && cost.total() == found.total;
        let got = faults.first().map_or_else(|| format!("{} by both", cost.total()), ToString::to_string);
        report.checks.push(Check::holds(format!("{name}: the checker agrees"), "no constraint broken, the same cost", got, sound));
        if let Some(out) = &args.common.out {
            std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
            let file = out.join(format!("{name}.assignment.txt"));
            let line = found.at.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            std::fs::write(&file, line).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    bar.finish_and_clear();
    report.tables.push(table);
    finish(&report, &args.common, format)
}

/// Reads a model and its assignment; errors name file and line.
fn read(model: &Path) -> Result<Reassignment> {
    let assignment = assignment(model)?;
    Reassignment::read(&text(model)?, &text(&assignment)?).map_err(|wrong| {
        let file = if wrong.file == InputFile::Model { model } else { &assignment };
        anyhow!("{}:{}: {}", file.display(), wrong.line, wrong.fault)
    })
}

/// The clock of the search; each reading of it also updates the progress bar.
fn watched(bar: &ProgressBar, began: f64, before: f64) -> Arc<dyn Fn() -> f64 + Send + Sync> {
    let bar = bar.clone();
    Arc::new(move || {
        let now = cpu();
        bar.set_position(((before + now - began) * TICKS) as u64);
        now
    })
}

fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The path of the assignment of a model: assignment_x.txt in the directory of model_x.txt.
fn assignment(model: &Path) -> Result<PathBuf> {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    let Some((before, after)) = name.rsplit_once("model") else {
        bail!(
            "{}: the name of a model file must contain `model` (model_a1_1.txt), which is replaced to find its assignment",
            model.display()
        );
    };
    Ok(model.with_file_name(format!("{before}assignment{after}")))
}
