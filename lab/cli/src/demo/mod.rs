//! `drover demo`: shows a relocation from end to end through the public REST API. Every figure that it prints is measured in this run.

mod apps;
mod load;
mod members;
mod story;

use std::io::IsTerminal;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use drover_service::telemetry;
use drover_store::private_postgres::Durability;
use secrecy::ExposeSecret;

use drover::globals::Format;
use drover::hub::Client;
use drover::session::Session;
use drover::stack::{Options, Stack};
use drover::tokens;

/// `drover demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  drover demo\n  drover demo --members local --once")]
pub struct DemoArgs {
    /// Kind of the three members.
    #[arg(long, env = "MEMBERS", value_enum, default_value_t = Members::Sim)]
    pub members: Members,
    /// Exit after the last step, with 0 only if every step succeeded.
    #[arg(long, env = "ONCE", value_parser = clap::builder::FalseyValueParser::new())]
    pub once: bool,
    /// Address of the gateway; another port is used if this one is in use.
    #[arg(long, default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,
    #[command(flatten)]
    telemetry: telemetry::Options,
}

/// Kinds of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Members {
    /// Clusters simulated in this process.
    Sim,
    /// Real Kubernetes control planes on this machine with simulated nodes.
    Local,
    /// Real control planes, kubelets and containers; needs root.
    Real,
}

/// Runs the demo.
///
/// # Errors
/// A part cannot start, or a request fails.
pub async fn run(args: DemoArgs) -> Result<ExitCode> {
    // The terminal is for the steps of the demo, so only warnings are logged unless another level was given.
    let log = if args.telemetry.log == "info" { "warn".to_owned() } else { args.telemetry.log.clone() };
    let telemetry = telemetry::init("drover", &telemetry::Options { log, ..args.telemetry.clone() })?;
    let data = tempfile::Builder::new().prefix("drover-demo-").tempdir()?;
    let outcome = tokio::select! {
        outcome = tell(&args, data.path()) => outcome,
        () = drover_service::signalled() => { eprintln!("\nending the demo…"); Ok(true) }
    };
    // Dropping `tell` has ended its tasks. Control planes would outlive this process.
    members::clean(args.members, data.path()).await;
    telemetry.flush().await;
    Ok(if outcome? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn tell(args: &DemoArgs, data: &std::path::Path) -> Result<bool> {
    let members = members::start(args.members, data).await?;
    let token = tokens::of_data(data)?;
    let stack = Stack::start(Options {
        tls: None,
        data: data.to_owned(),
        listen: free(args.listen)?,
        database_url: None,
        api_token: Some(token.clone()),
        allowed_hosts: Vec::new(),
        local_clusters: true,
        durability: Durability::ThrowAway,
        own_ports: true,
        flags: Vec::new(),
    })
    .await
    .context("the services cannot start")?;
    let client = Client::new(stack.url.clone(), Some(token.expose_secret().to_owned()))?;
    // If the token cannot be saved, only `drover get apps` in the line below is refused.
    let _saved = tokens::SavedToken::save(&stack.url, &token).ok();
    let session = Session { client, project: "default".into(), format: Format::Table };
    let mut outcome = Ok(story::tell(&session, &members.members, args.members != Members::Local).await?);
    if !args.once && std::io::stdout().is_terminal() {
        let page = drover::commands::page::link(&session.client).await?;
        println!("\nThe services keep running until Ctrl-C; try `drover --url {} get apps`, or open {page} (works once)", stack.url);
        outcome = Err(stack.ended().await);
    }
    stack.stop().await;
    outcome
}

/// `wanted`, or the same address with a free port if that port is in use.
fn free(wanted: SocketAddr) -> Result<SocketAddr> {
    if TcpListener::bind(wanted).is_ok() {
        return Ok(wanted);
    }
    let other = TcpListener::bind((wanted.ip(), 0))?.local_addr()?;
    eprintln!("{wanted} is in use; using {other}");
    Ok(other)
}
