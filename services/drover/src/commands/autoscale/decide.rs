//! `drover autoscale decide`: reads a configuration, then prints a decision for each line of observations.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use drover_autoscaling::offline::{Config, Decider, PRIMITIVES, primitive};

use super::file::read_table;

/// `drover autoscale decide`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover autoscale decide hpa.yaml < observations.jsonl
  echo '{\"population\":100}' | drover autoscale decide --primitive sampleSize
Schemas: docs/schemas/autoscale-*.json; an introduction: docs/how-to/autoscaling.md")]
pub struct DecideArgs {
    /// Configuration, YAML or JSON.
    #[arg(value_name = "CONFIG", required_unless_present_any = ["primitive", "config_file"], conflicts_with_all = ["primitive", "config_file"])]
    pub config: Option<PathBuf>,
    /// Configuration, as an option instead of an argument.
    #[arg(long = "config", short = 'c', value_name = "CONFIG", conflicts_with = "primitive")]
    pub config_file: Option<PathBuf>,
    /// Observations, a JSON object per line [default: stdin].
    #[arg(long, short = 'i', value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Run one building block instead of a policy; each JSON line read gives one line.
    #[arg(long, value_name = "NAME", value_parser = PRIMITIVES)]
    pub primitive: Option<String>,
    /// Print the whole decision record, including all inputs.
    #[arg(long, conflicts_with = "primitive")]
    pub record: bool,
}

/// Prints a decision, or the result of a primitive, for each line of the input until its end.
///
/// # Errors
/// The configuration or a line cannot be used; what was decided before is printed.
pub fn run(args: &DecideArgs) -> Result<()> {
    let mut decider = match args.config.as_ref().or(args.config_file.as_ref()) {
        Some(path) => Some(open(path)?),
        None => None,
    };
    let input: Box<dyn Read> = match args.input.as_deref() {
        Some(path) if path != Path::new("-") => {
            Box::new(std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?)
        }
        _ => Box::new(std::io::stdin()),
    };
    let mut input = BufReader::with_capacity(1 << 16, input);
    let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let mut line = String::new();
    for number in 1.. {
        // A program at the other end of the pipe gets each decision before the next observation is read.
        if input.buffer().is_empty() {
            out.flush()?;
        }
        line.clear();
        if input.read_line(&mut line).with_context(|| format!("line {number}: cannot be read as text"))? == 0 {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        let answer = match (&mut decider, &args.primitive) {
            (Some(decider), _) => decide(decider, &line, args.record),
            (None, Some(name)) => primitive(name, &line).map(|value| value.to_string()).map_err(anyhow::Error::from),
            (None, None) => bail!("give a configuration, or --primitive NAME"),
        };
        // Decisions made before an invalid line are printed.
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                out.flush()?;
                return Err(error.context(format!("line {number}")));
            }
        };
        writeln!(out, "{answer}")?;
    }
    Ok(out.flush()?)
}

fn decide(decider: &mut Decider, line: &str, record: bool) -> Result<String> {
    let decision = decider.line(line)?;
    Ok(match decider.last_record() {
        Some(whole) if record => serde_json::to_string(whole)?,
        _ => serde_json::to_string(&decision)?,
    })
}

fn open(path: &Path) -> Result<Decider> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let config: Config = serde_yaml::from_str(&text).with_context(|| format!("{}: not a configuration", path.display()))?;
    let table = config.table().map(|table| read_table(&beside(path, table))).transpose()?;
    Decider::new(&config, table).with_context(|| format!("{}: cannot be used", path.display()))
}

/// A file that a configuration names: relative to the configuration, or to the working directory if it is not there.
fn beside(config: &Path, named: &str) -> PathBuf {
    let near = config.parent().unwrap_or(Path::new("")).join(named);
    if near.exists() { near } else { PathBuf::from(named) }
}
