//! The commands and their help texts. The flags of each command and what it does are in its module of [`crate::commands`].

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    access, agents, apply, autoscale, backup, cluster, config, delete, deploy, diff, doctor, exec, explain, get, groups, image, keys, look,
    memguard, operation, page, plan, policy, provider, rollback, test, up,
};
use crate::globals::Globals;
use crate::lab::LabArgs;
use crate::output;
use crate::session::Session;

/// Runs applications on many Kubernetes clusters, fills the preferred cloud first, and makes room there by moving movable applications.
#[derive(Debug, Parser)]
#[command(name = "drover", version, propagate_version = true, after_help = EXAMPLES)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub globals: Globals,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  drover up                                                    start everything on this machine
  drover cluster add private-a --provider onprem --kubeconfig a.kubeconfig
  drover provider set onprem --priority 1
  drover deploy shop -f ./manifests/ --movable --wait
  drover get clusters
  drover explain shop/cart

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 a dry run or a plan found no room; `drover diff` and `drover exec` have their own.";

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start all services in one process, with a private Postgres unless DATABASE_URL is set.
    Up(Box<up::UpArgs>),
    /// Write everything below the data directory of a running `drover up` to one file.
    Backup(backup::BackupArgs),
    /// Make a data directory from a backup.
    Restore(backup::RestoreArgs),
    /// Register clusters, close and open them, rotate their kubeconfigs, remove them.
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// List providers, set their priority, remove them.
    #[command(subcommand)]
    Provider(provider::ProviderCommand),
    /// Deploy manifests or a Helm chart; updates the application in place if it is deployed already.
    #[command(disable_version_flag = true)] // `--version` is that of a chart
    Deploy(Box<deploy::DeployArgs>),
    /// Show what a deployment would change in the objects of an application.
    #[command(disable_version_flag = true)] // `--version` is that of a chart
    Diff(Box<diff::DiffArgs>),
    /// Create or replace EMCO resources from files, parents before children.
    Apply(apply::ApplyArgs),
    /// Terminate an application that `deploy` made, or what files of EMCO resources instantiate, and remove the resources.
    Delete(delete::DeleteArgs),
    /// List apps, clusters, agents, plans, operations, moves, routes or call graphs.
    Get(get::GetArgs),
    /// Explain why an app runs where it does and not elsewhere.
    Explain(explain::ExplainArgs),
    /// Print the logs of an application, wherever it runs.
    Logs(look::LogsArgs),
    /// Run a program in a container of an application, wherever it runs.
    Exec(exec::ExecArgs),
    /// List the events of an application in the clusters where it runs.
    Events(look::EventsArgs),
    /// List the pods of an application in the clusters where it runs.
    Pods(look::PodsArgs),
    /// List what was done to an application, newest first.
    History(look::HistoryArgs),
    /// Bring an application back to an earlier revision.
    Rollback(rollback::RollbackArgs),
    /// Run the tests of an application's charts where it runs.
    Test(test::TestArgs),
    /// Make, show, apply and discard plans.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// List, watch and cancel operations.
    #[command(subcommand)]
    Operation(operation::OperationCommand),
    /// Try migration policies.
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Run Drover's agents (autoscaler, memory guard) in clusters.
    #[command(subcommand)]
    Agents(agents::AgentsCommand),
    /// Bring images to a registry, without a container engine.
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// Autoscaler: explain what a cluster's agent does; decide, simulate and train offline.
    #[command(subcommand)]
    Autoscale(autoscale::AutoscaleCommand),
    /// Memory guard of the nodes: status, explain, simulate.
    #[command(subcommand)]
    Memguard(memguard::MemguardCommand),
    /// Group placement: what each policy would make of the clusters.
    #[command(subcommand)]
    Groups(groups::GroupsCommand),
    /// Traces for experiments: import published originals.
    Data(LabArgs),
    /// Start clusters for trials: simulated ones, or real control planes on this machine.
    Dev(LabArgs),
    /// Show a relocation from end to end on three clusters: an application that fits nowhere gets room because others move.
    Demo(LabArgs),
    /// Run an algorithm over a paper's settings and compare the result with what was expected.
    Experiment(LabArgs),
    /// Measure this build on this machine: throughput, latency, memory and CPU.
    Bench(LabArgs),
    /// Check whether this machine and the running Drover have what they need.
    Doctor(doctor::DoctorArgs),
    /// Explain the settings of the services and where their values come from.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Make, list and revoke tokens.
    #[command(subcommand)]
    Token(access::TokenCommand),
    /// Give roles to users of the identity provider, list and remove them.
    #[command(subcommand)]
    Role(access::RoleCommand),
    /// Show who you are for Drover and what you may do.
    Whoami,
    /// Replace the key that seals stored kubeconfigs and contents of applications.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Print a link that signs a browser in to the web page; it works once.
    Page,
    /// Print a shell completion script.
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// The command's name if it is one of those that `drover-lab` runs.
    pub fn of_lab(&self) -> Option<&'static str> {
        match self {
            Self::Data(_) => Some("data"),
            Self::Dev(_) => Some("dev"),
            Self::Demo(_) => Some("demo"),
            Self::Experiment(_) => Some("experiment"),
            Self::Bench(_) => Some("bench"),
            Self::Autoscale(command) => command.of_lab(),
            Self::Memguard(command) => command.of_lab(),
            Self::Groups(command) => command.of_lab(),
            _ => None,
        }
    }
}

/// Runs a command of this program; [`crate::main`] runs those of `drover-lab`.
///
/// # Errors
/// The command is refused or fails.
pub async fn run(cli: Cli) -> Result<ExitCode> {
    let Cli { globals, command } = cli;
    let format = globals.output;
    let session = || Session::open(globals);
    match command {
        Command::Up(args) => up::run(*args).await?,
        Command::Backup(args) => tokio::task::spawn_blocking(move || backup::backup(args)).await??,
        Command::Restore(args) => tokio::task::spawn_blocking(move || backup::restore(args)).await??,
        Command::Cluster(command) => cluster::run(&session()?, command).await?,
        Command::Provider(command) => provider::run(&session()?, command).await?,
        Command::Deploy(args) => deploy::run(&session()?, *args).await?,
        Command::Diff(args) => return Ok(diff::run(session(), &args).await),
        Command::Doctor(args) => doctor::run(&session()?, &args).await?,
        Command::Apply(args) => apply::run(&session()?, args).await?,
        Command::Delete(args) => delete::run(&session()?, &args).await?,
        Command::Get(args) => get::run(&session()?, args).await?,
        Command::Explain(args) => explain::run(&session()?, &args.app).await?,
        Command::Logs(args) => look::logs(&session()?, args).await?,
        Command::Exec(args) => return exec::run(&session()?, &args).await,
        Command::Events(args) => look::events(&session()?, &args.app).await?,
        Command::Pods(args) => look::pods(&session()?, &args.app).await?,
        Command::History(args) if args.revisions => look::revisions(&session()?, &args.app).await?,
        Command::History(args) => look::history(&session()?, &args.app).await?,
        Command::Rollback(args) => rollback::run(&session()?, &args).await?,
        Command::Test(args) => test::run(&session()?, &args).await?,
        Command::Plan(command) => plan::run(&session()?, command).await?,
        Command::Operation(command) => operation::run(&session()?, command).await?,
        Command::Policy(command) => policy::run(&session()?, command).await?,
        Command::Agents(command) => return agents::run(&session()?, command).await,
        Command::Image(command) => image::run(command, format).await?,
        Command::Autoscale(command) => autoscale::run(command, format).await?,
        Command::Memguard(command) => return memguard::run(command, format),
        Command::Data(_) | Command::Dev(_) | Command::Demo(_) | Command::Experiment(_) | Command::Bench(_) | Command::Groups(_) => {}
        Command::Token(command) => access::token(&session()?, command).await?,
        Command::Role(command) => access::role(&session()?, command).await?,
        Command::Whoami => access::whoami(&session()?).await?,
        Command::Keys(command) => keys::run(command)?,
        Command::Page => page::run(&session()?.client).await?,
        Command::Config(command) => config::run(command, format)?,
        Command::Completions { shell } => {
            // Into memory first: clap_complete panics when stdout is closed, as by `| head`.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "drover", &mut script);
            output::write_stdout(&String::from_utf8_lossy(&script))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
