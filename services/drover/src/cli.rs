//! The commands, their flags and their help texts. What they do is in [`crate::commands`].

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use url::Url;

use crate::lab::LabArgs;

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

/// Options of every command; `drover-lab` takes them too.
#[derive(Debug, Args)]
pub struct Globals {
    /// Address of Drover's gateway.
    #[arg(long, global = true, env = "DROVER_URL", default_value = "http://127.0.0.1:7070", value_name = "URL")]
    pub url: Url,
    /// File with the bearer token; DROVER_TOKEN may hold the token itself.
    #[arg(long, global = true, env = "DROVER_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Project.
    #[arg(long, short = 'p', global = true, env = "DROVER_PROJECT", default_value = "default", value_name = "NAME")]
    pub project: String,
    /// Output format.
    #[arg(long, short = 'o', global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

const EXAMPLES: &str = "\
Examples:
  drover up                                                    start everything on this machine
  drover cluster add private-a --provider onprem --kubeconfig a.kubeconfig
  drover provider set onprem --priority 1
  drover deploy shop -f ./manifests/ --movable --wait
  drover get clusters
  drover explain shop/cart

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 a dry run or a plan found no room.";

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people.
    Table,
    /// More columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start all services in one process, with a private Postgres unless DATABASE_URL is set.
    Up(Box<crate::commands::up::UpArgs>),
    /// Write everything below the data directory of a running `drover up` to one file.
    Backup(crate::commands::backup::BackupArgs),
    /// Make a data directory from a backup.
    Restore(crate::commands::backup::RestoreArgs),
    /// Register clusters, close and open them, rotate their kubeconfigs, remove them.
    #[command(subcommand)]
    Cluster(crate::commands::cluster::ClusterCommand),
    /// List providers, set their priority, remove them.
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Deploy manifests or a Helm chart; updates the application in place if it is deployed already.
    Deploy(DeployArgs),
    /// Show what a deployment would change in the objects of an application.
    Diff(crate::commands::diff::DiffArgs),
    /// Create or replace EMCO resources from files, parents before children.
    Apply(crate::commands::apply::ApplyArgs),
    /// Terminate an application that `deploy` made, or what files of EMCO resources instantiate, and remove the resources.
    Delete(DeleteArgs),
    /// List apps, clusters, plans, operations, moves or call graphs.
    Get(GetArgs),
    /// Explain why an app runs where it does and not elsewhere.
    Explain(ExplainArgs),
    /// Print the logs of an application, wherever it runs.
    Logs(crate::commands::look::LogsArgs),
    /// List the events of an application in the clusters where it runs.
    Events(crate::commands::look::EventsArgs),
    /// List the pods of an application in the clusters where it runs.
    Pods(crate::commands::look::PodsArgs),
    /// List what was done to an application, newest first.
    History(crate::commands::look::HistoryArgs),
    /// Make, show, apply and discard plans.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// List, watch and cancel operations.
    #[command(subcommand)]
    Operation(OperationCommand),
    /// Try migration policies.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Autoscaler: explain what a cluster's agent does; decide, simulate and train offline.
    #[command(subcommand)]
    Autoscale(crate::commands::autoscale::AutoscaleCommand),
    /// Memory guard of the nodes: status, explain, simulate.
    #[command(subcommand)]
    Memguard(crate::commands::memguard::MemguardCommand),
    /// Start clusters for trials: simulated ones, or real control planes on this machine.
    Dev(LabArgs),
    /// Show a relocation from end to end on three clusters: an application that fits nowhere gets room because others move.
    Demo(LabArgs),
    /// Run an algorithm over a paper's settings and compare the result with what was expected.
    Experiment(LabArgs),
    /// Measure this build on this machine: throughput, latency, memory and CPU.
    Bench(LabArgs),
    /// Check whether this machine and the running Drover have what they need.
    Doctor,
    /// Explain the settings of the services and where their values come from.
    #[command(subcommand)]
    Config(crate::commands::config::ConfigCommand),
    /// Replace the key that seals stored kubeconfigs.
    #[command(subcommand)]
    Keys(crate::commands::keys::KeysCommand),
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
            Self::Dev(_) => Some("dev"),
            Self::Demo(_) => Some("demo"),
            Self::Experiment(_) => Some("experiment"),
            Self::Bench(_) => Some("bench"),
            Self::Autoscale(command) => command.of_lab(),
            Self::Memguard(command) => command.of_lab(),
            _ => None,
        }
    }
}

/// `drover provider …`.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// Create a provider, or change its priority.
    #[command(after_help = "Example:\n  drover provider set onprem --priority 1")]
    Set {
        /// Name.
        name: String,
        /// 1 (filled first) to 10.
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=10))]
        priority: u8,
    },
    /// List providers.
    List,
    /// Remove a provider that has no clusters.
    #[command(alias = "rm")]
    Remove {
        /// Name.
        name: String,
    },
}

/// `drover deploy`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover deploy shop -f ./manifests/ --wait
  drover deploy shop -f ./chart/ --on onprem,aws --movable
  drover deploy shop -k ./overlays/test/ -n shop-test
  drover deploy shop -f ./manifests/ --split                       each workload finds a cluster of its own
  drover deploy rbac -f roles.yaml --everywhere
  drover deploy ledger -f ledger.yaml --only private-a --dry-run")]
pub struct DeployArgs {
    /// Name of the application.
    pub name: String,
    /// Manifest file (YAML or JSON), directory of manifests, directory or .tgz of a Helm chart; `-` reads manifests from stdin. May be
    /// repeated for manifests.
    #[arg(short = 'f', long = "filename", value_name = "PATH", required_unless_present = "kustomize")]
    pub paths: Vec<PathBuf>,
    /// Also read the directories inside directories.
    #[arg(short = 'R', long, requires = "paths")]
    pub recursive: bool,
    /// Directory of a kustomization, built by kustomize or kubectl.
    #[arg(short = 'k', long, value_name = "DIR", conflicts_with = "paths")]
    pub kustomize: Option<PathBuf>,
    /// Namespace of objects that name none; it is created where it does not exist [default: as it was; `default` for a new application].
    #[arg(short = 'n', long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Place and move each workload by itself, with the objects that belong to it. Without it everything stays together in one cluster.
    #[arg(long)]
    pub split: bool,
    /// Run only on clusters of these providers (comma separated). Without `--on`, `--only` and `--label` an application keeps what it
    /// had; a new one may run on every cluster, including those added later.
    #[arg(long, value_delimiter = ',', value_name = "PROVIDERS", conflicts_with_all = ["only", "label"])]
    pub on: Vec<String>,
    /// Run only on this cluster.
    #[arg(long, value_name = "CLUSTER", conflicts_with = "label")]
    pub only: Option<String>,
    /// Run only on clusters with this label.
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
    /// Run on every cluster that it may run on, instead of the best one. Clusters that are added later get it at the next deployment.
    #[arg(long)]
    pub everywhere: bool,
    /// What to do when the best provider is full [default: as it was; for a new application the project's setting, else overflow].
    #[arg(long, value_enum)]
    pub when_full: Option<WhenFullArg>,
    /// Allow its apps to be moved to make room for others.
    #[arg(long, conflicts_with = "pinned")]
    pub movable: bool,
    /// Never move its apps (the default for a new application).
    #[arg(long)]
    pub pinned: bool,
    /// How early its apps are moved, 1 (first) to 10 (last) [default: as it was; 10 for a new application].
    #[arg(long, requires = "movable", value_parser = clap::value_parser!(u8).range(1..=10))]
    pub move_priority: Option<u8>,
    /// Print what would happen. Documents written for that are restored afterwards.
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the application is Ready. Ctrl-C ends the waiting, not the deployment.
    #[arg(long)]
    pub wait: bool,
}

/// `--when-full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhenFullArg {
    /// Use less preferred clusters while they have room.
    Overflow,
    /// Make room on the best provider by moving others; overflow only if that is impossible.
    Preferred,
}

impl WhenFullArg {
    /// The value in the REST API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::Preferred => "preferred",
        }
    }
}

/// `drover delete`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  drover delete shop\n  drover delete -f emco-resources.yaml --values values.yaml")]
pub struct DeleteArgs {
    /// Name of an application that `deploy` made.
    #[arg(conflicts_with = "files", required_unless_present = "files")]
    pub name: Option<String>,
    #[command(flatten)]
    pub source: crate::commands::documents::DocumentFiles,
}

/// `drover get`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  drover get apps -o wide\n  drover get operations --watch\n  drover get clusters -o json\n  \
    drover get projects/p/logical-clouds          # EMCO resources by their anchor")]
pub struct GetArgs {
    /// `apps`, `clusters`, `plans`, `operations`, `moves`, `call-graphs`, or the anchor of EMCO resources.
    #[arg(value_name = "WHAT|ANCHOR", value_parser = Wanted::parse)]
    pub what: Wanted,
    /// Id or name, to show only one.
    pub name: Option<String>,
    /// Print the list again whenever it changes.
    #[arg(long, short = 'w')]
    pub watch: bool,
}

/// What `get` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    List(What),
    /// Path of an EMCO document or collection below `/v2`, and its query.
    Anchor(String),
}

impl Wanted {
    fn parse(text: &str) -> Result<Self, String> {
        const COLLECTIONS: [&str; 5] = ["projects", "cluster-providers", "controllers", "clm-controllers", "dtc-controllers"];
        if let Ok(what) = What::from_str(text, true) {
            return Ok(Self::List(what));
        }
        let anchor = text.trim_start_matches('/');
        let anchor = anchor.strip_prefix("v2/").unwrap_or(anchor);
        if anchor.contains('/') || COLLECTIONS.contains(&anchor.split('?').next().unwrap_or_default()) {
            return Ok(Self::Anchor(anchor.to_owned()));
        }
        Err(format!("use apps, clusters, plans, operations, moves, call-graphs, or an anchor such as {}", COLLECTIONS.join(", ")))
    }
}

/// What `get` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum What {
    #[value(alias = "app")]
    Apps,
    #[value(alias = "cluster")]
    Clusters,
    #[value(alias = "plan")]
    Plans,
    #[value(alias = "operation", alias = "ops")]
    Operations,
    #[value(alias = "move")]
    Moves,
    #[value(alias = "call-graph")]
    CallGraphs,
}

/// `drover explain`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  drover explain shop/cart")]
pub struct ExplainArgs {
    /// `APPLICATION/APP`, or the application alone if it has one app.
    pub app: String,
}

/// How to search for a plan.
#[derive(Debug, Args)]
pub struct PlanSearchArgs {
    /// Time limit of the search in seconds, 0.001 to 20 (default: the server's).
    #[arg(long, value_name = "SECONDS")]
    pub plan_seconds: Option<f64>,
    /// Spend the time on a plan with fewer moves.
    #[arg(long)]
    pub fewest_moves: bool,
}

/// `drover plan …`.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Plan what would have to move to make room for these manifests. Moves nothing.
    #[command(after_help = "Example:\n  drover plan newcomer ledger.yaml --only private-a")]
    Newcomer {
        /// Manifests.
        path: PathBuf,
        /// Name of the application [default: that of the file].
        #[arg(long)]
        name: Option<String>,
        /// Run only on this cluster.
        #[arg(long, value_name = "CLUSTER")]
        only: Option<String>,
        /// Run only on clusters of these providers (comma separated).
        #[arg(long, value_delimiter = ',', value_name = "PROVIDERS", conflicts_with = "only")]
        on: Vec<String>,
        #[command(flatten)]
        search: PlanSearchArgs,
        /// Show the plan and leave nothing behind; it cannot be applied, but `drover deploy` will make its like.
        #[arg(long)]
        dry_run: bool,
    },
    /// Plan what would have to move to empty a cluster. Moves nothing.
    #[command(after_help = "Example:\n  drover plan drain private-a")]
    Drain {
        /// Cluster, or provider/cluster.
        cluster: String,
        #[command(flatten)]
        search: PlanSearchArgs,
    },
    /// Plan an even distribution over the clusters (not available in this version).
    Rebalance,
    /// Show a plan.
    Show {
        /// Plan id.
        id: String,
        /// Also show for every other candidate why it is not moved.
        #[arg(long)]
        why_not: bool,
    },
    /// Carry out a plan; refused if what it assumed has changed.
    Apply {
        /// Plan id.
        id: String,
        /// Wait until it is done.
        #[arg(long)]
        wait: bool,
    },
    /// Discard a plan.
    Discard {
        /// Plan id.
        id: String,
    },
}

/// `drover operation …`.
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// Follow an operation until it ends. Ctrl-C ends the watching, not the operation.
    Watch {
        /// Operation id.
        id: String,
    },
    /// Cancel an operation and undo it; possible until it switches over to the new copies.
    Cancel {
        /// Operation id.
        id: String,
    },
    /// List operations.
    List,
}

/// `drover policy …`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show the scores that a policy, active or not, gives to the apps that could be moved now.
    #[command(after_help = "Example:\n  drover policy test busy-first --on private-a")]
    Test {
        /// Name of the policy.
        name: String,
        /// Cluster whose apps are scored.
        #[arg(long)]
        on: String,
    },
}
