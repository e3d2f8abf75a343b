//! The shape of the command line: commands, flags and their help. No behaviour.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use url::Url;

use crate::lab::LabArgs;

/// Runs applications on many Kubernetes clusters, fills the preferred cloud first, and makes room by moving what may move.
#[derive(Debug, Parser)]
#[command(name = "drover", version, propagate_version = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command; `drover-lab` takes them too.
#[derive(Debug, Args)]
pub struct Globals {
    /// Where Drover listens.
    #[arg(long, global = true, env = "DROVER_URL", default_value = "http://127.0.0.1:7070", value_name = "URL")]
    pub url: Url,
    /// File with the bearer token (or the token itself in DROVER_TOKEN).
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
  drover explain shop/cart";

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
    /// Register and remove clusters.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Providers and their priority.
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Deploy manifests or a Helm chart (again: update in place).
    Deploy(DeployArgs),
    /// Make or replace EMCO resources from files, parents first.
    Apply(crate::commands::apply::ApplyArgs),
    /// Terminate what `deploy` made and remove its resources.
    Delete(DeleteArgs),
    /// List apps, clusters, plans, operations, moves or call graphs.
    Get(GetArgs),
    /// Why an app is where it is, and why not elsewhere.
    Explain(ExplainArgs),
    /// Ask for a plan, read it, carry it out.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Watch and cancel long work.
    #[command(subcommand)]
    Operation(OperationCommand),
    /// Migration policies.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// The autoscaler: decide, simulate, train offline; explain what a cluster's agent does.
    #[command(subcommand)]
    Autoscale(crate::commands::autoscale::AutoscaleCommand),
    /// The memory guard of the nodes: status, explain, simulate.
    #[command(subcommand)]
    Memguard(crate::commands::memguard::MemguardCommand),
    /// Clusters to try things on: simulated, or real control planes on this machine.
    Dev(LabArgs),
    /// Show a relocation from end to end on three clusters: an application that fits nowhere gets room because others move.
    Demo(LabArgs),
    /// Run an algorithm over a paper's settings and compare the result with what was expected.
    Experiment(LabArgs),
    /// Measure this build on this machine: throughput, latency, memory and CPU.
    Bench(LabArgs),
    /// Settings: what they are and where they come from.
    #[command(subcommand)]
    Config(crate::commands::config::ConfigCommand),
    /// Print a shell completion script.
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// The command's name if `drover-lab` runs it.
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

/// `drover cluster …`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Register a cluster (its provider is made if it is new).
    #[command(after_help = "Example:\n  drover cluster add private-a --provider onprem --kubeconfig a.kubeconfig --label zone=kr-1")]
    Add {
        /// Name.
        name: String,
        /// Provider.
        #[arg(long)]
        provider: String,
        /// Kubeconfig file (certificates and tokens inline; `kubectl config view --raw --flatten --minify` makes one).
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
        /// Label; may be repeated.
        #[arg(long = "label", value_name = "LABEL")]
        labels: Vec<String>,
        /// Priority of the provider if it is made now (1 is best, 10 the default).
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=10))]
        priority: Option<u8>,
    },
    /// Remove a cluster that no app is on.
    #[command(alias = "rm")]
    Remove {
        /// Name, or provider/name.
        name: String,
    },
    /// List clusters by preference.
    List,
}

/// `drover provider …`.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// Make a provider, or change its priority.
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
    /// Remove a provider without clusters.
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
  drover deploy ledger -f ledger.yaml --only private-a --dry-run")]
pub struct DeployArgs {
    /// Name of the application.
    pub name: String,
    /// Manifest file, folder of manifests, folder of a Helm chart, or a chart's .tgz; `-` reads manifests from stdin.
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub path: PathBuf,
    /// Only clusters of these providers (comma separated). Without this, `--only` and `--label`: as it was; a new application
    /// may run anywhere, also on clusters that are added later.
    #[arg(long, value_delimiter = ',', value_name = "PROVIDERS", conflicts_with_all = ["only", "label"])]
    pub on: Vec<String>,
    /// Only this cluster.
    #[arg(long, value_name = "CLUSTER", conflicts_with = "label")]
    pub only: Option<String>,
    /// Only clusters with this label.
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
    /// What to do when the best provider is full (default: the project's, else overflow; deployed again: as it was).
    #[arg(long, value_enum)]
    pub when_full: Option<WhenFullArg>,
    /// Its apps may be moved to make room for others.
    #[arg(long, conflicts_with = "pinned")]
    pub movable: bool,
    /// Its apps are never moved (the default for a new application).
    #[arg(long)]
    pub pinned: bool,
    /// Which apps are moved first, 1 (first) to 10.
    #[arg(long, requires = "movable", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=10))]
    pub move_priority: u8,
    /// Say what would happen; what is written for that is put back as it was.
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until it is Ready; Ctrl-C stops waiting, not the work.
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
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::Preferred => "preferred",
        }
    }
}

/// `drover delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Name of the application.
    pub name: String,
}

/// `drover get`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  drover get apps -o wide\n  drover get operations --watch\n  drover get clusters -o json")]
pub struct GetArgs {
    /// What.
    #[arg(value_enum)]
    pub what: What,
    /// Id or name, to see one.
    pub name: Option<String>,
    /// Print again whenever something changes.
    #[arg(long, short = 'w')]
    pub watch: bool,
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
    /// `application/app`, or an application with one app.
    pub app: String,
}

/// `drover plan …`.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// What would have to move for these manifests; moves nothing.
    #[command(after_help = "Example:\n  drover plan newcomer ledger.yaml --only private-a")]
    Newcomer {
        /// Manifests.
        path: PathBuf,
        /// Name of the application (default: the file's).
        #[arg(long)]
        name: Option<String>,
        /// Only this cluster.
        #[arg(long, value_name = "CLUSTER")]
        only: Option<String>,
        /// Only clusters of these providers.
        #[arg(long, value_delimiter = ',', value_name = "PROVIDERS", conflicts_with = "only")]
        on: Vec<String>,
    },
    /// What would have to move to empty a cluster; moves nothing.
    #[command(after_help = "Example:\n  drover plan drain private-a")]
    Drain {
        /// Cluster, or provider/cluster.
        cluster: String,
    },
    /// What would have to move to even clusters out (comes with a later version).
    Rebalance,
    /// Show a plan.
    Show {
        /// Plan id.
        id: String,
        /// Also show why every other candidate stays.
        #[arg(long)]
        why_not: bool,
    },
    /// Carry a plan out, if the world still matches it.
    Apply {
        /// Plan id.
        id: String,
        /// Wait until it is done.
        #[arg(long)]
        wait: bool,
    },
    /// Throw a plan away.
    Discard {
        /// Plan id.
        id: String,
    },
}

/// `drover operation …`.
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// Follow an operation live; Ctrl-C stops watching, not working.
    Watch {
        /// Operation id.
        id: String,
    },
    /// Undo an operation (possible until it cuts over).
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
    /// Scores of today's candidates under a policy, active or not.
    #[command(after_help = "Example:\n  drover policy test busy-first --on private-a")]
    Test {
        /// Policy.
        name: String,
        /// Cluster.
        #[arg(long)]
        on: String,
    },
}
