//! `drover demo`: the main job told live, through the same REST as everyone's. Every figure printed is measured in this run.

mod apps;
mod members;
mod story;

use std::io::IsTerminal;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use drover_service::telemetry;
use drover_store::private_postgres::Durability;

use drover::cli::Format;
use drover::client::Client;
use drover::commands::Session;
use drover::stack::{Options, Stack};

/// `drover demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  drover demo\n  drover demo --members local --once")]
pub struct DemoArgs {
    /// What the three members are.
    #[arg(long, env = "MEMBERS", value_enum, default_value_t = Members::Sim)]
    pub members: Members,
    /// Tell the story and exit: 0 only if every step of it held.
    #[arg(long, env = "ONCE", value_parser = clap::builder::FalseyValueParser::new())]
    pub once: bool,
    /// Address of the gateway (another port is used when it is taken).
    #[arg(long, default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,
    #[command(flatten)]
    telemetry: telemetry::Options,
}

/// Kinds of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Members {
    /// Simulated clusters, in this process.
    Sim,
    /// Real Kubernetes control planes on this machine, simulated nodes.
    Local,
    /// Real control planes, kubelets and containers (root).
    Real,
}

/// Runs it.
pub async fn run(args: DemoArgs) -> Result<ExitCode> {
    // The story is told on this terminal; the log joins in only when something is wrong, or when asked to.
    let log = if args.telemetry.log == "info" { "warn".to_owned() } else { args.telemetry.log.clone() };
    let telemetry = telemetry::init("drover", &telemetry::Options { log, ..args.telemetry.clone() })?;
    let data = tempfile::Builder::new().prefix("drover-demo-").tempdir()?;
    let outcome = tokio::select! {
        outcome = tell(&args, data.path()) => outcome,
        () = drover_service::signalled() => { eprintln!("\nending the demo…"); Ok(true) }
    };
    // Dropping `tell` ended its tasks; what outlives a process of ours is ended here.
    members::clean(args.members, data.path()).await;
    telemetry.flush().await;
    Ok(if outcome? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn tell(args: &DemoArgs, data: &std::path::Path) -> Result<bool> {
    let members = members::start(args.members, data).await?;
    let stack = Stack::start(Options {
        data: data.to_owned(),
        listen: free(args.listen)?,
        database_url: None,
        api_token: None,
        insecure: false,
        durability: Durability::ThrowAway,
        own_ports: true,
        flags: Vec::new(),
    })
    .await
    .context("the services cannot start")?;
    let session = Session { client: Client::new(stack.url.clone(), None)?, project: "default".into(), format: Format::Table };
    let mut outcome = Ok(story::tell(&session, &members.members).await?);
    if !args.once && std::io::stdout().is_terminal() {
        println!("\nThe stack is yours: {}   `drover --url {} get apps`   Ctrl-C ends it", stack.url, stack.url);
        outcome = Err(stack.ended().await);
    }
    stack.stop().await;
    outcome
}

/// `wanted`, or another port where that one is taken.
fn free(wanted: SocketAddr) -> Result<SocketAddr> {
    if TcpListener::bind(wanted).is_ok() {
        return Ok(wanted);
    }
    let other = TcpListener::bind((wanted.ip(), 0))?.local_addr()?;
    eprintln!("{wanted} is taken, using {other}");
    Ok(other)
}
