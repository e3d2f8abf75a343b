//! The command line. Every command but `up` only sends REST requests to a running Drover, so a script with curl can do the same.
//! Benchmarks, experiments, simulators and the demo are in the program `drover-lab` (lab/cli), which this program runs for those commands.
//!
//! Results go to stdout, everything else to stderr. The exit code is 0 when the command succeeded, 1 when it was refused or failed,
//! 2 when the command line is wrong, and 3 when a dry run or a plan found no room. `drover diff` has the exit codes of `diff`, `drover exec`
//! those of the program that it runs.

pub mod agents;
pub mod application;
pub mod chart;
mod chart_folder;
pub mod cli;
pub mod clusters;
pub mod commands;
pub mod globals;
pub mod hub;
pub mod input;
mod lab;
pub mod manifests;
pub mod output;
pub mod plans;
mod reasons;
pub mod session;
pub mod split;
pub mod stack;
mod template;
pub mod tokens;
pub mod usage;
pub mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use drover_service::config::{self, FileError};
use drover_service::environment::without_empty;

/// Parses the command line, runs it, and turns its result into an exit code.
pub fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    if let Some(command) = cli.command.of_lab() {
        eprintln!("error: {}", lab::exec(command));
        return ExitCode::FAILURE;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(cli::run(cli)) {
        Ok(code) => code,
        Err(error) => {
            output::print_error(&error);
            ExitCode::from(if error.is::<output::NoRoom>() { 3 } else { 1 })
        }
    }
}

/// Parses the command line. Settings of `drover up` that neither a flag nor the environment gives are read from its TOML file.
fn parse() -> Result<cli::Cli, FileError> {
    let args: Vec<OsString> = std::env::args_os().collect();
    let mut command = without_empty(cli::Cli::command());
    let mut matches = usage::matches(&command, &args);
    if matches.subcommand_name() == Some("up")
        && let Some(up) = command.find_subcommand("up")
    {
        let (up, _) = config::with_file(up.clone(), &args)?;
        command = command.mut_subcommand("up", |_| up);
        matches = usage::matches(&command, &args);
    }
    Ok(cli::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
}
