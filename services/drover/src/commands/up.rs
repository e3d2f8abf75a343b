//! `drover up`: all services in one process.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use drover_service::{config, telemetry};
use drover_store::private_postgres::Durability;
use secrecy::SecretString;

use crate::stack::{Options, Stack};

/// `drover up`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  drover up\n  drover up --data /var/lib/drover --listen 127.0.0.1:8080\n  DATABASE_URL=postgres://… drover up"
)]
pub struct UpArgs {
    /// TOML file with values for these settings; flags and environment take precedence.
    #[arg(long, env = "DROVER_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory for Postgres and keys [default: ~/.local/share/drover].
    #[arg(long, env = "DROVER_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address of the gateway.
    #[arg(long, env = "DROVER_LISTEN", default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,
    /// URL of a Postgres to use instead of a private one.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<SecretString>,
    /// Bearer token that clients must send; required for listening on other addresses than loopback.
    #[arg(long, env = "DROVER_API_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub api_token: Option<SecretString>,
    /// File with the bearer token.
    #[arg(long, env = "DROVER_API_TOKEN_FILE", value_name = "FILE")]
    pub api_token_file: Option<PathBuf>,
    /// Allow listening on other addresses than loopback without a token.
    #[arg(long, env = "DROVER_INSECURE")]
    pub insecure: bool,
    #[command(flatten)]
    telemetry: telemetry::Options,
}

/// Runs until SIGTERM or Ctrl-C.
///
/// # Errors
/// The services cannot start, or one of them ended because a task failed that cannot be restarted.
pub async fn run(args: UpArgs) -> Result<()> {
    let telemetry = telemetry::init("drover", &args.telemetry)?;
    let data = args.data.map_or_else(default_data, Ok)?;
    let stack = Stack::start(Options {
        data: data.clone(),
        listen: args.listen,
        database_url: args.database_url,
        api_token: config::token(args.api_token, args.api_token_file.as_deref())?,
        insecure: args.insecure,
        durability: Durability::Durable,
        own_ports: true,
        flags: Vec::new(),
    })
    .await?;
    eprintln!("Drover is up   web and REST {}   data {}   Ctrl-C ends it", stack.url, data.display());
    let ended = tokio::select! {
        () = drover_service::signalled() => Ok(()),
        failure = stack.ended() => Err(failure),
    };
    eprintln!("ending…");
    stack.stop().await;
    telemetry.flush().await;
    ended
}

/// `$XDG_DATA_HOME/drover`, or `~/.local/share/drover`.
fn default_data() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")));
    Ok(base.context("neither XDG_DATA_HOME nor HOME is set; give --data DIR")?.join("drover"))
}
