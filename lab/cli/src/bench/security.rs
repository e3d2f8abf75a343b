//! What tokens and mutual TLS cost: the same requests to two Drovers, one that serves everybody over plain HTTP and one that asks for a token
//! and serves TLS, between its services with certificates on both sides.
//!
//! Both run in this process on one Postgres (with fsync), each with a database of its own, and both record every write in their audit log.
//! They are measured in turns, and in every second round in the other order, so that whatever the machine does meanwhile concerns both.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use drover_api::access::{NewToken, Role, TokenOrder};
use drover_report::{Check, Report, Table, percentile};
use drover_service::tls::TlsSettings;
use drover_service::{Common, Peers, Running, SealSettings, Tls};
use drover_store::private_postgres::{Durability, PrivatePostgres};
use http::{Request, header};
use http_body_util::Full;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use url::Url;
use uuid::Uuid;

use super::decisions::{self, Sizes, Template};
use super::load::{self, Clock, Connection, Done, Secured};
use super::process::{self, Members};
use super::stack::folder;
use super::{Size, cell, spread, world};

const PROVIDERS: usize = 10;
const API_TOKEN: &str = "the api token of this benchmark";

/// What is asked.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    /// Decisions of placement, as orchestrator asks for them.
    Decisions,
    /// Documents through the gateway, by one client.
    OnePost,
    /// Documents through the gateway, by many clients.
    Posts,
}

impl Asked {
    const ALL: [Self; 3] = [Self::Decisions, Self::OnePost, Self::Posts];

    fn name(self) -> &'static str {
        match self {
            Self::Decisions => "decisions",
            Self::OnePost => "POST, one client",
            Self::Posts => "POST, many clients",
        }
    }
}

/// Measures both, and compares them.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let full = Sizes { members: Members::roomy(20, 20), clients: 16, rounds: 10, time: Duration::from_secs(2) };
    let small = Sizes { members: Members::roomy(2, 2), clients: 2, rounds: 2, time: Duration::from_millis(300) };
    let sizes = size.of(full, small);

    let folder = folder()?;
    let simulated = process::simulate(sizes.members, &folder.path().join("sim")).await?;
    let postgres = PrivatePostgres::start(&folder.path().join("postgres"), Durability::Durable).await?;
    let mut connection = PgConnection::connect(postgres.url("postgres").expose_secret()).await?;
    sqlx::raw_sql("create database plain").execute(&mut connection).await?;
    sqlx::raw_sql("create database secured").execute(&mut connection).await?;
    connection.close().await?;
    let certificates = certificates(&folder.path().join("certificates"))?;
    let mut sides = Vec::new();
    for (database, certificates) in [("plain", None), ("secured", Some(certificates.as_path()))] {
        let side = Side::start(&postgres.url(database), &folder.path().join(database), certificates).await?;
        side.register(&simulated.kubeconfigs, sizes.members.nodes).await?;
        sides.push(side);
    }

    let mut rounds: Vec<[Vec<Done>; 2]> = Asked::ALL.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    for round in 0..sizes.rounds {
        for (asked, rounds) in Asked::ALL.into_iter().zip(&mut rounds) {
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for at in order {
                rounds[at].push(sides[at].measure(asked, &sizes).await?);
            }
        }
    }
    tell(&rounds, &sizes, report);
    for side in sides {
        side.stop().await;
    }
    postgres.stop().await;
    Ok(())
}

fn tell(rounds: &[[Vec<Done>; 2]], sizes: &Sizes, report: &mut Report) {
    let mut table = Table::new("security", ["what", "with", "a second, median", "least", "most", "p50 [ms]", "p90 [ms]", "p99 [ms]"]);
    let median = |values: &[f64]| percentile(values, 0.5);
    let p50 = |done: &Done| spread(&done.took)[0];
    for (asked, sides) in Asked::ALL.into_iter().zip(rounds) {
        for (with, rounds) in ["nothing", "token and TLS"].into_iter().zip(sides) {
            let rates: Vec<f64> = rounds.iter().map(|round| round.rate).collect();
            let took: Vec<Duration> = rounds.iter().flat_map(|round| round.took.iter().copied()).collect();
            let [p50, p90, p99, _] = spread(&took);
            let mut row = vec![asked.name().to_owned(), with.to_owned()];
            row.extend([median(&rates), percentile(&rates, 0.0), percentile(&rates, 1.0), p50, p90, p99].map(cell));
            table.row(row);
        }
        // Each pair was measured one after the other.
        let ratio = |of: &dyn Fn(&Done) -> f64| {
            let [plain, secured] = sides;
            median(&plain.iter().zip(secured).map(|(plain, secured)| of(secured) / of(plain)).collect::<Vec<_>>())
        };
        let check = match asked {
            Asked::Decisions => {
                Check::at_least("decisions a second with certificates, against without", 0.9, ratio(&|done| done.rate), "×")
            }
            Asked::OnePost => Check::at_most("latency of a POST with token and TLS, against without, p50", 1.1, ratio(&p50), "×"),
            Asked::Posts => Check::at_least("POSTs a second with token and TLS, against without", 0.9, ratio(&|done| done.rate), "×"),
        };
        report.checks.push(check);
    }
    report.finding(format!("security: {} members, {} clients, {} rounds", sizes.members.count, sizes.clients, sizes.rounds));
    report.tables.push(table);
}

/// A certificate for each service, made as for docker-compose.
fn certificates(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let script = folder.join("certificates.sh");
    std::fs::write(&script, include_str!("../../../../deploy/docker/certificates.sh"))?;
    let made = Command::new("bash").arg(&script).arg(folder).stdin(Stdio::null()).output().context("bash")?;
    ensure!(made.status.success(), "certificates cannot be made: {}", String::from_utf8_lossy(&made.stderr));
    Ok(folder.to_owned())
}

/// The certificate of a service.
fn tls(folder: &Path, service: &str) -> Result<Tls> {
    let file = |name: String| Some(folder.join(name));
    let settings = TlsSettings { cert: file(format!("{service}.pem")), key: file(format!("{service}.key")), ca: file("ca.pem".to_owned()) };
    settings.load()?.context("the files are set")
}

/// A Drover with the services that are asked.
struct Side {
    manager: Running,
    placement: Running,
    gateway: Running,
    /// Shown to services: the certificate of orchestrator.
    peer: Option<Tls>,
    peer_token: String,
    client: drover::hub::Client,
    token: Option<String>,
}

impl Side {
    async fn start(database: &SecretString, folder: &Path, certificates: Option<&Path>) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let scheme = if certificates.is_some() { "https" } else { "http" };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let peer_token = Uuid::new_v4().to_string();
        let mut common = Common::new(database.expose_secret(), peer_token.clone(), Peers::default());
        common.local_clusters = true;
        common.api_token = certificates.map(|_| SecretString::from(API_TOKEN));
        let of = |common: &Common, service: &'static str| -> Result<Common> {
            Ok(Common { tls: certificates.map(|folder| tls(folder, service)).transpose()?, ..common.clone() })
        };
        let seal = SealSettings::in_file(folder.join("seal.key"));
        let manager = drover_cluster_manager::Config { listen: any, seal: seal.clone(), ..drover_cluster_manager::Config::default() };
        let manager = drover_cluster_manager::start(manager, of(&common, "cluster-manager")?).await?;
        common.peers.cluster_manager = Url::parse(&format!("{scheme}://{}", manager.addr))?;
        let placement = drover_placement::start(drover_placement::Config { listen: any }, of(&common, "placement")?).await?;
        common.peers.placement = Url::parse(&format!("{scheme}://{}", placement.addr))?;
        let gateway = drover_gateway::Config {
            listen: any,
            max_connections_per_address: 512,
            seal,
            rate: drover_gateway::RateSettings { per_second: 1_000_000, burst: 1_000_000 },
            programs: drover_gateway::ProgramSettings::default(),
            audit: drover_gateway::AuditSettings::default(),
            oidc: drover_gateway::OidcSettings::default(),
        };
        let gateway = drover_gateway::start(gateway, of(&common, "gateway")?).await?;
        let at = Url::parse(&format!("{scheme}://{}", gateway.addr))?;
        let authority = certificates.map(|folder| folder.join("ca.pem"));
        let given = certificates.map(|_| API_TOKEN.to_owned());
        let client = drover::hub::Client::with_authority(at, given, authority.as_deref())?;
        let mut token = None;
        if certificates.is_some() {
            let order = TokenOrder { name: "bench".to_owned(), role: Role::Operator, projects: None, expires_in_seconds: Some(86_400) };
            let made = client.post("/v2/tokens", Some(&serde_json::to_value(&order)?)).await?;
            token = Some(serde_json::from_value::<NewToken>(made.body)?.token);
        }
        let peer = certificates.map(|folder| tls(folder, "orchestrator")).transpose()?;
        Ok(Self { manager, placement, gateway, peer, peer_token, client, token })
    }

    async fn register(&self, kubeconfigs: &[PathBuf], nodes: usize) -> Result<()> {
        world::register(&self.client, kubeconfigs, PROVIDERS, |_| Vec::new()).await?;
        world::members_known(&self.client, kubeconfigs.len(), nodes).await
    }

    /// How to connect to a service.
    fn secured(&self, service: &'static str) -> Result<Option<Secured>> {
        self.peer.as_ref().map(|tls| Ok(Secured { config: Arc::new(tls.connector(service)?), service })).transpose()
    }

    async fn measure(&self, asked: Asked, sizes: &Sizes) -> Result<Done> {
        match asked {
            Asked::Decisions => self.decisions(sizes).await,
            Asked::OnePost => self.posts(1, sizes.time).await,
            Asked::Posts => self.posts(sizes.clients, sizes.time).await,
        }
    }

    async fn decisions(&self, sizes: &Sizes) -> Result<Done> {
        let (address, members) = (self.placement.addr, sizes.members.count);
        let (secured, token) = (self.secured("placement")?, self.peer_token.clone());
        let client = move |n: usize, clock: Clock| {
            let (secured, token) = (secured.clone(), token.clone());
            async move {
                let mut connection = Connection::open(address, secured).await?;
                let mut ask = Template::new(&decisions::any_of_eight(members, n))?;
                clock.repeat(async || connection.send(ask.next(address, &token)?).await).await
            }
        };
        load::run(sizes.clients, sizes.time, client).await
    }

    async fn posts(&self, clients: usize, time: Duration) -> Result<Done> {
        let address = self.gateway.addr;
        let (secured, token) = (self.secured("gateway")?, self.token.clone());
        let client = move |_: usize, clock: Clock| {
            let (secured, token) = (secured.clone(), token.clone());
            async move {
                let mut connection = Connection::open(address, secured).await?;
                let one = async || {
                    let body = json!({"metadata": {"name": format!("p-{}", Uuid::now_v7().simple())}}).to_string();
                    let mut request = Request::post("/v2/cluster-providers")
                        .header(header::HOST, address.to_string())
                        .header(header::CONTENT_TYPE, "application/json");
                    if let Some(token) = &token {
                        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
                    }
                    connection.send(request.body(Full::new(Bytes::from(body)))?).await
                };
                clock.repeat(one).await
            }
        };
        load::run(clients, time, client).await
    }

    async fn stop(self) {
        for service in [self.gateway, self.placement, self.manager] {
            service.stop().await;
        }
    }
}
