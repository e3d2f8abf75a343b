//! All services in one process. They talk over loopback TCP, as they would on six machines.
//!
//! Used by `drover up`, the demo and the end-to-end tests. Starts a private Postgres unless the URL of another one is given.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use drover_service::environment::without_empty;
use drover_service::{Common, Peers, Reserved, Running, Tasks, Tls};
use drover_store::private_postgres::{Durability, PrivatePostgres};
use rand::distr::{Alphanumeric, SampleString};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

/// Settings of a stack.
pub struct Options {
    /// Directory of all state: the private Postgres and the key that seals kubeconfigs and contents of applications.
    pub data: PathBuf,
    /// Address of the gateway.
    pub listen: SocketAddr,
    /// URL of a Postgres to use instead of a private one.
    pub database_url: Option<SecretString>,
    /// Bearer token that clients must send; without one, everyone on this machine is served.
    pub api_token: Option<SecretString>,
    /// Names under which clients reach the gateway, besides localhost and IP addresses.
    pub allowed_hosts: Vec<String>,
    /// Certificate of the gateway. The other services are reached from this process only, on loopback, and have none.
    pub tls: Option<Tls>,
    /// Accept clusters on this machine: for development.
    pub local_clusters: bool,
    /// What data of the private Postgres must survive.
    pub durability: Durability,
    /// Use each service's default port where it is free; otherwise any free port, so that several stacks fit on one machine.
    pub own_ports: bool,
    /// More flags by service, for example `("orchestrator", "--ready-seconds=5")`.
    pub flags: Vec<(&'static str, String)>,
}

/// A running stack.
pub struct Stack {
    /// Address of the gateway.
    pub url: Url,
    /// What all its services share.
    pub common: Common,
    /// Address of the data path for other services.
    traffic: Url,
    services: Vec<(&'static str, Running)>,
    postgres: Option<PrivatePostgres>,
}

impl Stack {
    /// Starts all parts. When one cannot start, those already started are stopped.
    ///
    /// # Errors
    /// Postgres cannot be found or started, the address is in use, or a service cannot start.
    pub async fn start(options: Options) -> Result<Self> {
        std::fs::create_dir_all(&options.data).with_context(|| format!("cannot make {}", options.data.display()))?;
        let (postgres, database_url) = match options.database_url {
            Some(url) => (None, url),
            None => {
                let postgres = PrivatePostgres::start(&options.data.join("postgres"), options.durability).await?;
                let url = postgres.url("postgres");
                (Some(postgres), url)
            }
        };
        let reserved = Reserved::default();
        let port = |own: u16| reserve(&reserved, if options.own_ports { own } else { 0 });
        let peers = Peers {
            cluster_manager: port(9061)?,
            orchestrator: port(9015)?,
            placement: port(9031)?,
            migration: port(9900)?,
            resource_synchronizer: port(9023)?,
        };
        let traffic = port(9070)?;
        // All services and their callers are in this process, so the token never leaves it.
        let peer_token = Alphanumeric.sample_string(&mut rand::rng(), 40);
        let mut common = Common::new(database_url.expose_secret(), peer_token, peers);
        (common.api_token, common.allowed_hosts, common.reserved) = (options.api_token, options.allowed_hosts, reserved.clone());
        common.local_clusters = options.local_clusters;
        let mut stack = Self { url: Url::parse("http://127.0.0.1/")?, common, traffic, services: Vec::new(), postgres };
        if let Err(error) = stack.start_services(&options.data, options.listen, options.tls, &options.flags).await {
            stack.stop().await;
            return Err(error);
        }
        Ok(stack)
    }

    async fn start_services(&mut self, data: &Path, listen: SocketAddr, tls: Option<Tls>, flags: &[(&'static str, String)]) -> Result<()> {
        let peers = self.common.peers.clone();
        let key = data.join("seal.key").display().to_string();
        let address = |url: &Url| format!("127.0.0.1:{}", url.port().unwrap_or_default());
        macro_rules! start {
            ($name:literal, $service:ident, $($arg:expr),*) => {{
                let more = flags.iter().filter(|(service, _)| *service == $name).map(|(_, flag)| flag.as_str());
                let config = settings::<$service::Config>($name, [$($arg),*].into_iter().chain(more))?;
                let running = $service::start(config, self.common.clone()).await.with_context(|| concat!($name, " cannot start"))?;
                self.services.push(($name, running));
            }};
        }
        start!(
            "cluster-manager",
            drover_cluster_manager,
            "--listen",
            address(&peers.cluster_manager).as_str(),
            "--seal-key-file",
            key.as_str()
        );
        start!("placement", drover_placement, "--listen", address(&peers.placement).as_str());
        let at = address(&peers.resource_synchronizer);
        start!("resource-synchronizer", drover_resource_synchronizer, "--listen", at.as_str(), "--seal-key-file", key.as_str());
        start!("migration", drover_migration, "--listen", address(&peers.migration).as_str());
        let (dir, at) = (data.join("traffic").display().to_string(), self.traffic.clone());
        start!(
            "orchestrator",
            drover_orchestrator,
            "--listen",
            address(&peers.orchestrator).as_str(),
            "--seal-key-file",
            key.as_str(),
            "--traffic-url",
            at.as_str()
        );
        start!("traffic", drover_traffic, "--listen", address(&at).as_str(), "--dir", dir.as_str());
        let scheme = if tls.is_some() { "https" } else { "http" };
        self.common.tls = tls;
        start!("gateway", drover_gateway, "--listen", listen.to_string().as_str(), "--seal-key-file", key.as_str());
        let gateway = self.services.last().map_or(listen, |(_, running)| running.addr);
        self.url = Url::parse(&format!("{scheme}://{gateway}/"))?;
        Ok(())
    }

    /// Waits until a service ends by itself, and returns why.
    pub async fn ended(&self) -> anyhow::Error {
        let each = self.services.iter().map(|(_, running)| Box::pin(running.shutdown.cancelled()));
        let (_, index, _) = futures::future::select_all(each).await;
        let (name, running) = &self.services[index];
        anyhow::anyhow!("{name} ended: {}", running.tasks.fatal().unwrap_or("it was stopped"))
    }

    /// The supervised tasks of each service.
    pub fn tasks(&self) -> impl Iterator<Item = (&'static str, &Tasks)> {
        self.services.iter().map(|(name, running)| (*name, &running.tasks))
    }

    /// Stops all services, callers before those they call, and then Postgres.
    pub async fn stop(mut self) {
        self.common.shutdown.cancel();
        while let Some((_, running)) = self.services.pop() {
            running.stop().await;
        }
        if let Some(postgres) = self.postgres.take() {
            postgres.stop().await;
        }
    }
}

/// A service's settings as its own parser reads them: from these flags, then from its environment and defaults.
fn settings<'a, C: Args>(name: &'static str, flags: impl Iterator<Item = &'a str>) -> Result<C> {
    let matches = without_empty(C::augment_args(Command::new(name))).try_get_matches_from(std::iter::once(name).chain(flags))?;
    Ok(C::from_arg_matches(&matches)?)
}

/// Reserves the service's own port if it is free, else any. The port is open from here on, so that no other stack takes it.
fn reserve(reserved: &Reserved, own: u16) -> Result<Url> {
    Ok(Url::parse(&format!("http://{}", reserved.reserve(own)?))?)
}
