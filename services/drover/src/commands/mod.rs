//! The commands, one file each.

pub mod apply;
pub mod autoscale;
pub mod backup;
mod before;
pub mod cluster;
pub mod config;
pub mod deploy;
mod deployed;
pub mod diff;
mod doctor;
pub mod documents;
mod explain;
mod get;
pub mod keys;
pub mod look;
pub mod manifests;
pub mod memguard;
mod newcomer;
mod operation;
pub mod page;
pub mod plan;
mod policy;
mod provider;
pub mod up;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::cli::{Cli, Command, Format, Globals};
use crate::client::Client;
use crate::tokens;

/// What commands that talk to Drover need.
pub struct Session {
    /// Client of the gateway.
    pub client: Client,
    pub project: String,
    /// Output format.
    pub format: Format,
}

/// Runs a command of this program; [`crate::main`] runs those of `drover-lab`.
///
/// # Errors
/// The command is refused or fails.
pub async fn run(cli: Cli) -> Result<ExitCode> {
    let Cli { globals: Globals { url, token_file, project, output: format }, command } = cli;
    let session = || -> Result<Session> {
        let token = match &token_file {
            Some(file) => Some(std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?.trim().to_owned()),
            None => std::env::var("DROVER_TOKEN").ok().filter(|token| !token.is_empty()).or_else(|| tokens::of_url(&url)),
        };
        Ok(Session { client: Client::new(url, token)?, project, format })
    };
    match command {
        Command::Up(args) => up::run(*args).await?,
        Command::Backup(args) => tokio::task::spawn_blocking(move || backup::backup(args)).await??,
        Command::Restore(args) => tokio::task::spawn_blocking(move || backup::restore(args)).await??,
        Command::Cluster(command) => cluster::run(&session()?, command).await?,
        Command::Provider(command) => provider::run(&session()?, command).await?,
        Command::Deploy(args) => deploy::run(&session()?, args).await?,
        Command::Diff(args) => diff::run(&session()?, &args).await?,
        Command::Doctor => doctor::run(&session()?).await?,
        Command::Apply(args) => apply::run(&session()?, args).await?,
        Command::Delete(args) => match &args.name {
            Some(name) => deploy::delete(&session()?, name).await?,
            None => apply::delete(&session()?, &args.source).await?,
        },
        Command::Get(args) => get::run(&session()?, args).await?,
        Command::Explain(args) => explain::run(&session()?, &args.app).await?,
        Command::Logs(args) => look::logs(&session()?, args).await?,
        Command::Events(args) => look::events(&session()?, &args.app).await?,
        Command::Pods(args) => look::pods(&session()?, &args.app).await?,
        Command::History(args) => look::history(&session()?, &args.app).await?,
        Command::Plan(command) => plan::run(&session()?, command).await?,
        Command::Operation(command) => operation::run(&session()?, command).await?,
        Command::Policy(command) => policy::run(&session()?, command).await?,
        Command::Autoscale(command) => autoscale::run(command, format).await?,
        Command::Memguard(command) => return memguard::run(command, format),
        Command::Dev(_) | Command::Demo(_) | Command::Experiment(_) | Command::Bench(_) => {}
        Command::Keys(command) => keys::run(command)?,
        Command::Page => page::run(&session()?.client).await?,
        Command::Config(command) => config::run(command, format)?,
        Command::Completions { shell } => {
            // Into memory first: clap_complete panics when stdout is closed, as by `| head`.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "drover", &mut script);
            crate::output::write_stdout(&String::from_utf8_lossy(&script))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
