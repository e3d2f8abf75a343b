//! Arguments of `drover deploy`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `drover deploy`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover deploy shop -f ./manifests/ --wait
  drover deploy shop -f ./chart/ --on onprem,aws --movable
  drover deploy shop -f shop-1.2.tgz --values prod.yaml --set image.tag=1.2.3
  drover deploy metrics -f https://example.com/components.yaml
  drover deploy podinfo --chart podinfo --repo https://stefanprodan.github.io/podinfo --version 6.7.1
  drover deploy shop -k ./overlays/test/ -n shop-test
  drover deploy shop -f ./manifests/ --movable --route shop.example:80=web:8080
  drover deploy shop -f ./manifests/ --split                       each workload finds a cluster of its own
  drover deploy shop -f ./manifests/ --scale-to-zero --wait
  drover deploy rbac -f roles.yaml --everywhere
  drover deploy ledger -f ledger.yaml --only private-a --dry-run
  drover deploy shop -f shop.yaml --dry-run -o json > shop.dry && drover deploy shop -f shop.yaml --since-dry-run shop.dry")]
pub struct DeployArgs {
    /// Name of the application.
    pub name: String,
    #[command(flatten)]
    pub source: crate::application::source::SourceArgs,
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
    /// Run on every cluster that it may run on, instead of the best one, and also on those that are added later.
    #[arg(long)]
    pub everywhere: bool,
    /// What to do when the best provider is full [default: as it was; for a new application the project's setting, else overflow].
    #[arg(long, value_enum)]
    pub when_full: Option<WhenFullArg>,
    /// Allow its apps to be moved to make room for others. Between clusters of one pod network (label pod-network=NAME) the names of
    /// its Services keep answering its callers. Elsewhere an application that stays together is moved as a whole; with `--split` an app
    /// whose Services the other parts call by name stays; and callers in other applications are named. With `--movable=alone` no app
    /// is moved that has a Service.
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "all", conflicts_with = "pinned")]
    pub movable: Option<MovableArg>,
    /// Never move its apps (the default for a new application).
    #[arg(long)]
    pub pinned: bool,
    /// How early its apps are moved, 1 (first) to 10 (last) [default: as it was; 10 for a new application].
    #[arg(long, requires = "movable", value_parser = clap::value_parser!(u8).range(1..=10))]
    pub move_priority: Option<u8>,
    /// Address at which users reach a Service of the application wherever it runs, as [PROTOCOL://][HOST]:PORT=SERVICE:PORT with the
    /// protocol http (also HTTP/2, gRPC and WebSocket), https or tcp; may be repeated. Those given replace the ones that it has; without
    /// the option these stay.
    #[arg(long = "route", value_name = "ADDRESS=SERVICE:PORT")]
    pub routes: Vec<crate::application::routes::RouteArg>,
    /// An HTTPRoute of the Gateway API that carries these routes instead of Drover's data path, as
    /// gateway:PROVIDER+CLUSTER/NAMESPACE/HTTPROUTE. Drover sets the weights of its backends that lead to the application.
    #[arg(long, requires = "routes", value_name = "GATEWAY")]
    pub route_by: Option<crate::application::routes::RouteByArg>,
    /// Remove the routes of the application.
    #[arg(long, conflicts_with = "routes")]
    pub no_routes: bool,
    /// Print what would happen. Documents written for that are restored afterwards.
    #[arg(long)]
    pub dry_run: bool,
    /// Say what has changed since a dry run, whose answer (`--dry-run -o json`) is in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub since_dry_run: Option<PathBuf>,
    /// Wait until the application is Ready. Ctrl-C ends the waiting, not the deployment.
    #[arg(long)]
    pub wait: bool,
}

/// `--movable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MovableArg {
    /// Also apps that have Services (the default).
    All,
    /// Only apps without Services.
    Alone,
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
