//! The command line. Everything but `up` and `dev` speaks REST with a running Drover and nothing else:
//! what it can do, a script with curl can do.
//!
//! stdout is data, stderr is everything else; exit code 0 done, 1 refused or failed, 2 wrong usage.

pub mod bench;
pub mod cli;
pub mod client;
mod commands;
pub mod dev;
pub mod experiment;
pub mod output;
pub mod split;
pub mod stack;
mod watch;

use std::process::ExitCode;

use clap::Parser;

/// Parses the command line, runs it, and turns its result into an exit code.
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(code) => code,
        Err(error) => {
            output::print_error(&error);
            ExitCode::FAILURE
        }
    }
}
