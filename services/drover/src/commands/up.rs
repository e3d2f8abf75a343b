//! `drover up`: all services in one process.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use drover_service::tls::TlsSettings;
use drover_service::{config, telemetry};
use drover_store::private_postgres::Durability;
use secrecy::{ExposeSecret, SecretString};

use crate::commands::{doctor, page};
use crate::hub::Client;
use crate::stack::{Options, Stack};
use crate::tokens::{self, SavedToken};

/// `drover up`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  drover up\n  drover up --local-clusters\n  drover up --data /var/lib/drover --listen 127.0.0.1:8080\n  DATABASE_URL=postgres://… drover up"
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
    /// Bearer token that clients must send [default: the one in DIR/api-token, made at the first start].
    #[arg(long, env = "DROVER_API_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub api_token: Option<SecretString>,
    /// File with the bearer token.
    #[arg(long, env = "DROVER_API_TOKEN_FILE", value_name = "FILE")]
    pub api_token_file: Option<PathBuf>,
    /// Serve everyone on this machine without a token; listens on loopback only.
    #[arg(long, env = "DROVER_INSECURE_NO_AUTH", conflicts_with_all = ["api_token", "api_token_file"])]
    pub insecure_no_auth: bool,
    /// Names under which clients reach the gateway, besides localhost and IP addresses (comma separated).
    #[arg(long, env = "DROVER_ALLOWED_HOSTS", value_delimiter = ',', value_name = "NAMES")]
    pub allowed_hosts: Vec<String>,
    /// Accept clusters on this machine (`drover dev`, kind, minikube): for development.
    #[arg(long, env = "DROVER_LOCAL_CLUSTERS")]
    pub local_clusters: bool,
    /// PEM file with the gateway's certificate, followed by those that lead to its authority; read again when it changes.
    #[arg(long, env = "DROVER_TLS_CERT_FILE", value_name = "FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the key of the certificate.
    #[arg(long, env = "DROVER_TLS_KEY_FILE", value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// Address on which agents of clusters that Drover cannot reach (`drover-link`) are taken [default: none are].
    #[arg(long, env = "DROVER_LINK_LISTEN", value_name = "ADDRESS")]
    pub link_listen: Option<SocketAddr>,
    /// Address under which agents reach it, HOST:PORT [default: the one it listens on].
    #[arg(long, env = "DROVER_LINK_ADDRESS", value_name = "HOST:PORT", requires = "link_listen")]
    pub link_address: Option<String>,
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
    std::fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
    let token = match config::token(args.api_token, args.api_token_file.as_deref())? {
        None if !args.insecure_no_auth => Some(tokens::of_data(&data)?),
        given => given,
    };
    let tls = TlsSettings { cert: args.tls_cert_file, key: args.tls_key_file, ca: None }.load()?;
    let links = [("--link-listen", args.link_listen.map(|at| at.to_string())), ("--link-address", args.link_address)];
    let links = links.into_iter().filter_map(|(flag, value)| Some(("cluster-manager", format!("{flag}={}", value?))));
    let stack = Stack::start(Options {
        tls,
        data: data.clone(),
        listen: args.listen,
        database_url: args.database_url,
        api_token: token.clone(),
        allowed_hosts: args.allowed_hosts,
        local_clusters: args.local_clusters,
        durability: Durability::Durable,
        own_ports: true,
        flags: links.collect(),
    })
    .await?;
    // Before anything is said: whoever reads that Drover is up may start the command line at once.
    let _saved = token.as_ref().and_then(|token| save(&stack, token));
    eprintln!("Drover is up   web and REST {}   data {}   Ctrl-C ends it", stack.url, data.display());
    doctor::lacking().iter().for_each(|what| eprintln!("note: {what}"));
    if let Some(token) = &token {
        print_link(&stack, token).await;
    }
    let ended = tokio::select! {
        () = drover_service::signalled() => Ok(()),
        failure = stack.ended() => Err(failure),
    };
    eprintln!("ending…");
    stack.stop().await;
    telemetry.flush().await;
    ended
}

/// Lets this user's command line in. A failure keeps nobody else out, so it is told and not an error.
fn save(stack: &Stack, token: &SecretString) -> Option<SavedToken> {
    let saved = SavedToken::save(&stack.url, token);
    saved.inspect_err(|error| eprintln!("warning: {error:#}; give the command line --token-file")).ok()
}

/// Prints a link that lets a browser in.
async fn print_link(stack: &Stack, token: &SecretString) {
    if stack.url.scheme() == "https" {
        // This process does not know the authority of its certificate, nor a name in it.
        eprintln!("open the page with the link that `drover --url https://NAME:PORT [--ca-file FILE] page` prints");
        return;
    }
    let link = match Client::new(stack.url.clone(), Some(token.expose_secret().to_owned())) {
        Ok(client) => page::link(&client).await,
        Err(error) => Err(error),
    };
    match link {
        Ok(link) => eprintln!("open the page with {link}   (works once, for ten minutes; `drover page` prints another)"),
        Err(error) => eprintln!("warning: no link for the page: {error:#}"),
    }
}

/// `$XDG_DATA_HOME/drover`, or `~/.local/share/drover`.
///
/// # Errors
/// Neither XDG_DATA_HOME nor HOME is set.
pub fn default_data() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_DATA_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")));
    Ok(base.context("neither XDG_DATA_HOME nor HOME is set; give --data DIR")?.join("drover"))
}
