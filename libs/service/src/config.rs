//! Configuration from flags, the environment (`DROVER_*`) and a TOML file, in that order of precedence, and what a service is given
//! of it ([`Common`]).
//!
//! The file's keys are the flags' names (`api-token-file = "…"`; a table `[peers]` with `placement = …` means
//! `peers-placement`). Its values become the defaults of the flags. So there is one parser with one set of errors, and
//! [`explain`] can tell where each value came from.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;
use uuid::Uuid;

use crate::connections::ConnectionLimits;
use crate::environment::without_empty;
use crate::health::Readiness;
use crate::metrics::Metrics;
use crate::peer::Peer;
use crate::principal::Identities;
use crate::reserved::Reserved;
use crate::sessions::Sessions;
use crate::telemetry::{self, Telemetry};
use crate::tls::{Tls, TlsSettings};
use drover_tasks::{OnFailure, TaskEnd, TaskHandle, Tasks};

/// The settings that every service has.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// TOML file with defaults for all of these
    #[arg(long, env = "DROVER_CONFIG", global = true)]
    pub config: Option<PathBuf>,
    /// Postgres database that holds everything
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<SecretString>,
    /// Token with which services authenticate to each other
    #[arg(long, env = "DROVER_PEER_TOKEN", hide_env_values = true)]
    pub peer_token: Option<SecretString>,
    /// File that holds the peer token
    #[arg(long, env = "DROVER_PEER_TOKEN_FILE")]
    pub peer_token_file: Option<PathBuf>,
    /// Token that clients must send
    #[arg(long, env = "DROVER_API_TOKEN", hide_env_values = true)]
    pub api_token: Option<SecretString>,
    /// File that holds the API token
    #[arg(long, env = "DROVER_API_TOKEN_FILE")]
    pub api_token_file: Option<PathBuf>,
    /// Serve everyone who can connect, without an API token, and listen on loopback only
    #[arg(long, env = "DROVER_INSECURE_NO_AUTH", conflicts_with_all = ["api_token", "api_token_file"])]
    pub insecure_no_auth: bool,
    /// Names under which clients reach this service, besides localhost and IP addresses (comma separated)
    #[arg(long = "allowed-hosts", env = "DROVER_ALLOWED_HOSTS", value_delimiter = ',', value_name = "NAMES")]
    pub allowed_hosts: Vec<String>,
    /// Address of each service
    #[command(flatten)]
    pub peers: Peers,
    /// Accept clusters on this machine and its link: for development
    #[arg(long, env = "DROVER_LOCAL_CLUSTERS")]
    pub local_clusters: bool,
    /// Limits of connections
    #[command(flatten)]
    pub connections: ConnectionLimits,
    /// Certificates
    #[command(flatten)]
    pub tls: TlsSettings,
    /// Logs and traces
    #[command(flatten)]
    pub telemetry: telemetry::Options,
}

/// Addresses of the services.
#[derive(Args, Clone, Debug)]
pub struct Peers {
    /// Address of cluster-manager
    #[arg(long = "peers-cluster-manager", env = "DROVER_PEERS_CLUSTER_MANAGER", default_value = "http://127.0.0.1:9061")]
    pub cluster_manager: Url,
    /// Address of orchestrator
    #[arg(long = "peers-orchestrator", env = "DROVER_PEERS_ORCHESTRATOR", default_value = "http://127.0.0.1:9015")]
    pub orchestrator: Url,
    /// Address of placement
    #[arg(long = "peers-placement", env = "DROVER_PEERS_PLACEMENT", default_value = "http://127.0.0.1:9031")]
    pub placement: Url,
    /// Address of migration
    #[arg(long = "peers-migration", env = "DROVER_PEERS_MIGRATION", default_value = "http://127.0.0.1:9900")]
    pub migration: Url,
    /// Address of resource-synchronizer
    #[arg(long = "peers-resource-synchronizer", env = "DROVER_PEERS_RESOURCE_SYNCHRONIZER", default_value = "http://127.0.0.1:9023")]
    pub resource_synchronizer: Url,
}

impl Peers {
    /// The address of each service.
    pub fn all(&self) -> [&Url; 5] {
        [&self.cluster_manager, &self.orchestrator, &self.placement, &self.migration, &self.resource_synchronizer]
    }
}

impl Default for Peers {
    fn default() -> Self {
        let at = |port: u16| Url::parse(&format!("http://127.0.0.1:{port}")).expect("a literal address");
        Self {
            cluster_manager: at(9061),
            orchestrator: at(9015),
            placement: at(9031),
            migration: at(9900),
            resource_synchronizer: at(9023),
        }
    }
}

/// Settings and handles that every service has. Cheap to clone; [`Common::scoped`] gives a service its own tasks, metrics and checks.
#[derive(Clone)]
pub struct Common {
    /// Name of the service, for logs, traces and documents.
    pub service: &'static str,
    /// Address of Postgres, password included.
    pub database_url: SecretString,
    /// Sent to other services and demanded from them.
    pub peer_token: SecretString,
    /// Demanded from clients, if set.
    pub api_token: Option<SecretString>,
    /// Host names of requests and of the pages that send them, besides localhost, IP addresses and `peers`.
    pub allowed_hosts: Vec<String>,
    /// Browsers that have signed in here.
    pub sessions: Sessions,
    /// Tokens and users besides the API token: the gateway's.
    pub identities: Option<Arc<dyn Identities>>,
    /// Addresses of the other services.
    pub peers: Peers,
    /// Clusters may be on this machine: for development.
    pub local_clusters: bool,
    /// Limits of the listener.
    pub connections: ConnectionLimits,
    /// Certificates, if the service has TLS.
    pub tls: Option<Tls>,
    /// Handle of logs and traces.
    pub telemetry: Telemetry,
    /// Cancelled to end the service.
    pub shutdown: CancellationToken,
    /// Everything that the service runs; its end waits for it.
    pub tracker: TaskTracker,
    /// The service's supervised tasks.
    pub tasks: Tasks,
    /// The service's metrics.
    pub metrics: Metrics,
    /// The service's readiness.
    pub readiness: Readiness,
    /// Sockets that were opened before the service that will listen on them.
    pub reserved: Reserved,
}

impl Common {
    /// A context that reads neither files nor the environment: for `drover up` and tests.
    pub fn new(database_url: impl Into<String>, peer_token: impl Into<String>, peers: Peers) -> Self {
        let shutdown = CancellationToken::new();
        let tasks = Tasks::new(shutdown.clone());
        Self {
            service: "drover",
            database_url: SecretString::from(database_url.into()),
            peer_token: SecretString::from(peer_token.into()),
            api_token: None,
            allowed_hosts: Vec::new(),
            sessions: Sessions::default(),
            identities: None,
            peers,
            local_clusters: false,
            connections: ConnectionLimits::default(),
            tls: None,
            telemetry: telemetry::current(),
            shutdown,
            tracker: TaskTracker::new(),
            metrics: Metrics::new(&tasks),
            readiness: Readiness::new(tasks.clone()),
            tasks,
            reserved: Reserved::default(),
        }
    }

    /// A copy for one service, with tasks, metrics, checks and sessions of its own and a shutdown token below the caller's.
    pub fn scoped(&self, service: &'static str) -> Self {
        let shutdown = self.shutdown.child_token();
        let tasks = Tasks::new(shutdown.clone());
        Self {
            service,
            shutdown,
            tracker: TaskTracker::new(),
            metrics: Metrics::new(&tasks),
            readiness: Readiness::new(tasks.clone()),
            sessions: Sessions::default(),
            tasks,
            ..self.clone()
        }
    }

    /// A client of another service.
    pub fn peer(&self, name: &'static str, base: &Url) -> Peer {
        Peer::new(name, base.clone(), self.peer_token.clone()).tls(self.tls.as_ref())
    }

    /// Runs a supervised task until it ends or the service does; see [`Tasks::spawn`].
    pub fn spawn<F, Fut>(&self, name: impl Into<Cow<'static, str>>, on_failure: OnFailure, start: F)
    where
        F: FnMut(TaskHandle) -> Fut + Send + 'static,
        Fut: Future<Output: TaskEnd> + Send + 'static,
    {
        self.tasks.spawn(&self.tracker, self.shutdown.clone(), name, on_failure, start);
    }

    /// As [`Common::spawn`], for a task that cannot be started again: its failure ends the process.
    pub fn spawn_once<F, Fut>(&self, name: impl Into<Cow<'static, str>>, start: F)
    where
        F: FnOnce(TaskHandle) -> Fut + Send + 'static,
        Fut: Future<Output: TaskEnd> + Send + 'static,
    {
        self.tasks.spawn_once(&self.tracker, self.shutdown.clone(), name, start);
    }
}

impl Settings {
    /// Reads token files and starts telemetry.
    ///
    /// # Errors
    /// There is no peer token, or neither an API token nor `--insecure-no-auth`; a token file cannot be read or is empty; or telemetry
    /// cannot be started.
    pub fn common(self, service: &'static str) -> anyhow::Result<Common> {
        let telemetry = telemetry::init(service, &self.telemetry)?;
        let tls = self.tls.load()?;
        let peer_token = match &tls {
            // Services know each other by their certificates; nobody knows this token.
            Some(tls) if tls.is_mutual() => SecretString::from(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())),
            _ => token(self.peer_token, self.peer_token_file.as_deref())?.ok_or_else(|| {
                anyhow::anyhow!("services need to know each other: set --tls-ca-file, or a common --peer-token-file (DROVER_PEER_TOKEN)")
            })?,
        };
        // The gateway has no database; a service that needs one fails when it connects.
        let database_url = self.database_url.unwrap_or_default();
        let api_token = token(self.api_token, self.api_token_file.as_deref())?;
        anyhow::ensure!(
            api_token.is_some() || self.insecure_no_auth,
            "clients need a token: set --api-token-file or DROVER_API_TOKEN; --insecure-no-auth serves everyone on this machine without one"
        );
        let mut common = Common::new(database_url.expose_secret(), peer_token.expose_secret(), self.peers);
        (common.service, common.telemetry, common.api_token) = (service, telemetry, api_token);
        (common.allowed_hosts, common.connections, common.local_clusters) = (self.allowed_hosts, self.connections, self.local_clusters);
        common.tls = tls;
        Ok(common)
    }
}

/// A token from its value, or else from its file; none if neither is given.
///
/// # Errors
/// The file cannot be read, or is empty.
pub fn token(value: Option<SecretString>, file: Option<&Path>) -> anyhow::Result<Option<SecretString>> {
    let Some(file) = file.filter(|_| value.is_none()) else { return Ok(value) };
    let text = std::fs::read_to_string(file).map_err(|error| anyhow::anyhow!("cannot read {}: {error}", file.display()))?;
    let text = text.trim();
    anyhow::ensure!(!text.is_empty(), "{} is empty; it should hold a token", file.display());
    Ok(Some(SecretString::from(text.to_owned())))
}

/// Where the value of a setting came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Flag,
    Environment,
    /// The TOML file.
    File,
    /// The setting was given nowhere.
    Default,
}

/// One line of `drover config explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// Name of the flag, without dashes in front, and key in the file.
    pub name: String,
    pub env: Option<String>,
    /// The value; `(set)` for a secret.
    pub value: Option<String>,
    pub source: Source,
    pub help: String,
}

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read the configuration {0}: {1}")]
    Read(PathBuf, std::io::Error),
    #[error("the configuration {0} is not valid TOML: {1}")]
    Syntax(PathBuf, toml::de::Error),
    /// A key that is not the name of a flag.
    #[error("the configuration {0} has the key {1:?}, which is not the name of a setting")]
    Unknown(PathBuf, String),
}

#[derive(clap::Parser)]
struct Cli<C: Args> {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    config: C,
}

/// Parses the command line of a service; prints help and errors and exits as clap does.
pub(crate) fn parse<C: Args>(service: &'static str) -> (Settings, C) {
    let command = without_empty(<Cli<C> as clap::CommandFactory>::command().name(service).version(env!("CARGO_PKG_VERSION")));
    let args: Vec<OsString> = std::env::args_os().collect();
    let command = match with_file(command, &args) {
        Ok((command, _)) => command,
        Err(error) => {
            eprintln!("{error}");
            exit(2)
        }
    };
    let parsed = command.try_get_matches_from(args).and_then(|mut matches| Cli::<C>::from_arg_matches_mut(&mut matches));
    match parsed {
        Ok(cli) => (cli.settings, cli.config),
        Err(error) => error.exit(),
    }
}

/// Gives the command's arguments the defaults in the file (`--config`, `DROVER_CONFIG`); returns the file's keys too.
///
/// # Errors
/// The file cannot be read, is not TOML, or has an unknown key.
pub fn with_file(mut command: Command, args: &[OsString]) -> Result<(Command, Vec<String>), FileError> {
    let Some(file) = file_of(args) else { return Ok((command, Vec::new())) };
    let text = std::fs::read_to_string(&file).map_err(|error| FileError::Read(file.clone(), error))?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| FileError::Syntax(file.clone(), error))?;
    let mut values = BTreeMap::new();
    flatten("", &table, &mut values);
    let known: BTreeMap<String, clap::Id> =
        command.get_arguments().filter_map(|arg| Some((arg.get_long()?.to_owned(), arg.get_id().clone()))).collect();
    for (key, value) in &values {
        let id = known.get(key).ok_or_else(|| FileError::Unknown(file.clone(), key.clone()))?;
        let value = value.clone();
        command = command.mut_arg(id, move |arg| arg.default_value(value));
    }
    Ok((command, values.into_keys().collect()))
}

fn file_of(args: &[OsString]) -> Option<PathBuf> {
    for (index, arg) in args.iter().enumerate() {
        if arg == "--config" {
            return args.get(index + 1).map(PathBuf::from);
        }
        if let Some(path) = arg.to_str().and_then(|arg| arg.strip_prefix("--config=")) {
            return Some(PathBuf::from(path));
        }
    }
    std::env::var_os("DROVER_CONFIG").filter(|file| !file.is_empty()).map(PathBuf::from)
}

fn flatten(prefix: &str, table: &toml::Table, into: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let key = key.replace('_', "-");
        let name = if prefix.is_empty() { key } else { format!("{prefix}-{key}") };
        match value {
            toml::Value::Table(table) => flatten(&name, table, into),
            toml::Value::String(text) => {
                into.insert(name, text.clone());
            }
            other => {
                into.insert(name, other.to_string());
            }
        }
    }
}

/// Each setting of a parsed command with its value, its source and its help text.
pub fn explain(command: &Command, matches: &ArgMatches, from_file: &[String]) -> Vec<Explained> {
    command
        .get_arguments()
        .filter_map(|arg| {
            let name = arg.get_long()?.to_owned();
            if matches!(name.as_str(), "help" | "version") {
                return None;
            }
            let id = arg.get_id().as_str();
            let source = match matches.value_source(id) {
                Some(ValueSource::CommandLine) => Source::Flag,
                Some(ValueSource::EnvVariable) => Source::Environment,
                _ if from_file.contains(&name) => Source::File,
                _ => Source::Default,
            };
            let raw = matches
                .try_get_raw(id)
                .ok()
                .flatten()
                .map(|values| values.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>().join(","));
            let value = raw.map(|raw| if arg.is_hide_env_values_set() { "(set)".to_owned() } else { raw });
            Some(Explained {
                env: arg.get_env().map(|env| env.to_string_lossy().into_owned()),
                help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
                name,
                value,
                source,
            })
        })
        .collect()
}

/// The command with the settings that every service has and a service's own, `C`: what [`explain`] needs.
pub fn command<C: Args>(name: &'static str) -> Command {
    without_empty(C::augment_args(Settings::augment_args(Command::new(name))))
}
