//! Settings of orchestrator, as flags and environment variables.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use drover_service::SealSettings;
use reqwest::Url;

/// Flags and environment of orchestrator.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address that orchestrator listens on
    #[arg(long, env = "DROVER_ORCHESTRATOR_LISTEN", default_value = "127.0.0.1:9015")]
    pub listen: SocketAddr,
    /// The helm binary (a path, or a name on PATH)
    #[arg(long, env = "DROVER_HELM", default_value = "helm")]
    pub helm: PathBuf,
    /// Seconds that a chart may take to render
    #[arg(long, env = "DROVER_HELM_SECONDS", default_value_t = 30)]
    pub helm_seconds: u64,
    /// Seconds that an app may take to become ready; too low undoes slow starts, too high delays the undo of failed ones
    #[arg(long, env = "DROVER_READY_SECONDS", default_value_t = 120)]
    pub ready_seconds: u64,
    /// Seconds that room may take to become free after the removal of the old copies was requested
    #[arg(long, env = "DROVER_ROOM_SECONDS", default_value_t = 120)]
    pub room_seconds: u64,
    /// Seconds that pods may find no node before the room counts as lost; too low takes a slow scheduler for lost room
    #[arg(long, env = "DROVER_UNSCHEDULABLE_SECONDS", default_value_t = 10)]
    pub unschedulable_seconds: u64,
    /// Seconds that a cluster may be unreachable before another destination is tried, or what is to be removed there is left for later
    #[arg(long, env = "DROVER_UNREACHABLE_SECONDS", default_value_t = 20)]
    pub unreachable_seconds: u64,
    /// Seconds to wait for old objects to be gone before they are left for later
    #[arg(long, env = "DROVER_GONE_SECONDS", default_value_t = 60)]
    pub gone_seconds: u64,
    /// Seconds that an app must lack pods in a cluster before bounds over all clusters are divided anew; they then stay four times as long
    #[arg(long, env = "DROVER_BOUNDS_SECONDS", default_value_t = 30)]
    pub bounds_seconds: u32,
    /// Base URL of the Prometheus that is queried for call graphs; without it only spans and declarations count
    #[arg(long = "prometheus-url", env = "DROVER_PROMETHEUS_URL")]
    pub prometheus: Option<Url>,
    /// Origins of controllers that may be called, such as https://policy.example.com, separated by commas; without any none is called
    #[arg(long, env = "DROVER_CONTROLLER_ORIGINS", value_delimiter = ',')]
    pub controller_origins: Vec<Url>,
    /// Seal key
    #[command(flatten)]
    pub seal: SealSettings,
    /// Base URLs of the processes of the data path of routes (drover-traffic), comma separated; a move of an app that has a route waits
    /// until each of them has followed it
    #[arg(long = "traffic-url", env = "DROVER_TRAFFIC_URLS", value_delimiter = ',', value_name = "URLS")]
    pub traffic: Vec<Url>,
    /// Stable name of this instance: after a restart under the same name it resumes its own workflows at once
    #[arg(long, env = "DROVER_INSTANCE", default_value = "orchestrator-0")]
    pub instance: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9015)),
            helm: PathBuf::from("helm"),
            helm_seconds: 30,
            ready_seconds: 120,
            room_seconds: 120,
            unschedulable_seconds: 10,
            unreachable_seconds: 20,
            gone_seconds: 60,
            bounds_seconds: 30,
            prometheus: None,
            controller_origins: Vec::new(),
            seal: SealSettings::default(),
            traffic: Vec::new(),
            instance: "orchestrator-0".to_owned(),
        }
    }
}

/// Maximum waiting times of workflows.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    pub ready: Duration,
    pub room: Duration,
    pub unschedulable: Duration,
    pub unreachable: Duration,
    pub gone: Duration,
}

impl Deadlines {
    /// The deadlines of bindings without an alternative: pods without a node and unreachable clusters get the full `ready` timeout.
    pub fn with_full_ready_timeout(self) -> Self {
        Self { unschedulable: self.ready, unreachable: self.ready, ..self }
    }
}

impl Config {
    /// The deadlines as durations.
    pub fn deadlines(&self) -> Deadlines {
        let seconds = Duration::from_secs;
        Deadlines {
            ready: seconds(self.ready_seconds),
            room: seconds(self.room_seconds),
            unschedulable: seconds(self.unschedulable_seconds),
            unreachable: seconds(self.unreachable_seconds),
            gone: seconds(self.gone_seconds),
        }
    }
}
