//! Placement decisions per second over REST, each durable with its claims.
//!
//! cluster-manager and placement run in this process, Postgres (with fsync) and the simulated members in others. The baseline is single-row
//! commits by as many clients; it is measured in every round on the same server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use drover_api::scheduling::{Amounts, AppRequest, DecisionRequest, Demand, DigRef, Element, Intent, MemberKey, PlacementTerms, PodGroup};
use drover_report::{Check, Report, Table, percentile};
use drover_service::{Common, Peers, Running, SealSettings};
use drover_store::private_postgres::{Durability, PrivatePostgres};
use http::{Request, header};
use http_body_util::Full;
use secrecy::ExposeSecret;
use sqlx::postgres::PgPoolOptions;
use url::Url;
use uuid::Uuid;

use super::load::{self, Connection, Done, THREAD};
use super::process::{self, Members};
use super::stack::folder;
use super::{Size, cell, machine, spread, world};

const TOKEN: &str = "of this benchmark alone";
const PROVIDERS: usize = 10;
/// Number of clusters that an app names as alternatives.
const NAMED: usize = 8;

/// How much is measured.
pub struct Sizes {
    pub members: Members,
    /// Clients that ask at the same time.
    pub clients: usize,
    pub rounds: usize,
    /// Time of each round.
    pub time: Duration,
}

/// Series of measurements: decisions by what the apps may run on, and two baselines.
#[derive(Clone, Copy, PartialEq)]
enum Series {
    AnyOfEight,
    AnyByLabel,
    /// Commits through a pool on the runtime of the services, as services write.
    Commits,
    /// Commits with a connection per client on one thread, the cheapest way to use Postgres.
    LeanCommits,
}

impl Series {
    const ALL: [Self; 4] = [Self::AnyOfEight, Self::AnyByLabel, Self::Commits, Self::LeanCommits];

    fn name(self) -> &'static str {
        match self {
            Self::AnyOfEight => "decisions, any of 8 members",
            Self::AnyByLabel => "decisions, any member by label",
            Self::Commits => "single-row commits through a pool",
            Self::LeanCommits => "single-row commits, one connection per client",
        }
    }
}

/// One round of one series.
struct Round {
    done: Done,
    /// CPU microseconds per decision or commit: services, Postgres, load.
    cpu: [f64; 3],
}

/// Measures decisions and the baseline.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let full = Sizes { members: Members::roomy(100, 20), clients: 16, rounds: 5, time: Duration::from_secs(3) };
    let small = Sizes { members: Members::roomy(4, 2), clients: 2, rounds: 1, time: Duration::from_millis(300) };
    let sizes = size.of(full, small);

    let folder = folder()?;
    let simulated = process::simulate(sizes.members, &folder.path().join("sim")).await?;
    let postgres = PrivatePostgres::start(&folder.path().join("postgres"), Durability::Durable).await?;
    let services = Services::start(postgres.url("postgres").expose_secret(), folder.path()).await?;
    services.register(&simulated.kubeconfigs, sizes.members.nodes).await?;

    let pool = PgPoolOptions::new().max_connections(2);
    let pool = pool.connect(postgres.url("postgres").expose_secret()).await?;
    sqlx::query("create table bare (id uuid primary key)").execute(&pool).await?;
    pool.close().await;

    let mut rounds: Vec<Vec<Round>> = Series::ALL.iter().map(|_| Vec::new()).collect();
    for _ in 0..sizes.rounds {
        for (series, rounds) in Series::ALL.into_iter().zip(&mut rounds) {
            let before = cpu();
            let done = match series {
                Series::Commits => pooled(postgres.url("postgres").expose_secret(), &sizes).await?,
                Series::LeanCommits => commits(postgres.url("postgres").expose_secret().to_owned(), &sizes).await?,
                _ => services.decisions(series, &sizes).await?,
            };
            let each = |at: usize| (cpu()[at] - before[at]) / 1.2 / done.took.len() as f64 * 1e6;
            rounds.push(Round { cpu: [each(0), each(1), each(2)], done });
        }
    }
    tell(&rounds, &sizes, report);
    services.stop().await;
    postgres.stop().await;
    Ok(())
}

/// CPU seconds so far of the services (this process without the load), Postgres and the load. Load threads end with their round and add
/// their CPU time to [`LOAD`] before.
fn cpu() -> [f64; 3] {
    let pid = std::process::id();
    let all = machine::usage(pid).map_or(f64::NAN, |usage| usage.cpu);
    let load = LOAD.load(std::sync::atomic::Ordering::Relaxed) as f64 / 1e6;
    [all - load, machine::postgres_cpu(pid), load]
}

/// CPU microseconds of all load threads that have ended.
static LOAD: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn tell(rounds: &[Vec<Round>], sizes: &Sizes, report: &mut Report) {
    let mut table = Table::new(
        "decisions",
        ["what", "a second, median", "least", "most", "p50 [ms]", "p90 [ms]", "p99 [ms]", "CPU µs each: services", "Postgres", "load"],
    );
    let median = |values: &[f64]| percentile(values, 0.5);
    for (series, rounds) in Series::ALL.into_iter().zip(rounds) {
        let rates: Vec<f64> = rounds.iter().map(|round| round.done.rate).collect();
        let took: Vec<Duration> = rounds.iter().flat_map(|round| round.done.took.iter().copied()).collect();
        let [p50, p90, p99, _] = spread(&took);
        let cpu = |at: usize| median(&rounds.iter().map(|round| round.cpu[at]).collect::<Vec<_>>());
        let mut row = vec![series.name().to_owned()];
        row.extend([median(&rates), percentile(&rates, 0.0), percentile(&rates, 1.0), p50, p90, p99, cpu(0), cpu(1), cpu(2)].map(cell));
        table.row(row);
    }
    let ratio = |at: usize| {
        let pairs = rounds[at].iter().zip(&rounds[2]);
        median(&pairs.map(|(decisions, commits)| decisions.done.rate / commits.done.rate).collect::<Vec<_>>())
    };
    for (at, series) in [(0, Series::AnyOfEight), (1, Series::AnyByLabel)] {
        let rate = median(&rounds[at].iter().map(|round| round.done.rate).collect::<Vec<_>>());
        report.checks.push(Check::at_least(series.name(), 8_000.0, rate, "/s"));
        report.checks.push(Check::at_least(format!("{}, against commits of the same round", series.name()), 0.7, ratio(at), "×"));
    }
    report.finding(format!("decisions: {} members of {} nodes, {} clients", sizes.members.count, sizes.members.nodes, sizes.clients));
    report.tables.push(table);
}

struct Services {
    manager: Running,
    placement: Running,
}

impl Services {
    async fn start(database: &str, folder: &std::path::Path) -> Result<Self> {
        let mut common = Common::new(database, TOKEN, Peers::default());
        common.local_clusters = true;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let key = folder.join("seal.key");
        let manager =
            drover_cluster_manager::Config { listen: any, seal: SealSettings::in_file(key), ..drover_cluster_manager::Config::default() };
        let manager = drover_cluster_manager::start(manager, common.clone()).await?;
        common.peers.cluster_manager = Url::parse(&format!("http://{}", manager.addr))?;
        let placement = drover_placement::start(drover_placement::Config { listen: any }, common).await?;
        Ok(Self { manager, placement })
    }

    async fn register(&self, kubeconfigs: &[std::path::PathBuf], nodes: usize) -> Result<()> {
        let manager = drover::hub::Client::new(Url::parse(&format!("http://{}", self.manager.addr))?, None)?;
        world::register(&manager, kubeconfigs, PROVIDERS, |_| vec!["all".to_owned()]).await?;
        let placement = drover::hub::Client::new(Url::parse(&format!("http://{}", self.placement.addr))?, None)?;
        world::members_known(&placement, kubeconfigs.len(), nodes).await
    }

    async fn decisions(&self, series: Series, sizes: &Sizes) -> Result<Done> {
        let (address, members) = (self.placement.addr, sizes.members.count);
        let client = move |n: usize, clock: load::Clock| async move {
            let mut connection = Connection::open(address, None).await?;
            let mut ask = Template::new(&request(series, members, n))?;
            let took = clock.repeat(async || connection.send(ask.next(address, TOKEN)?).await).await;
            note_load();
            took
        };
        load::run(sizes.clients, sizes.time, client).await
    }

    async fn stop(self) {
        self.placement.stop().await;
        self.manager.stop().await;
    }
}

async fn pooled(url: &str, sizes: &Sizes) -> Result<Done> {
    let pool = PgPoolOptions::new().max_connections(u32::try_from(sizes.clients)?).connect(url).await?;
    let clock = load::Clock::new(sizes.time);
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..sizes.clients {
        let (pool, clock) = (pool.clone(), clock.clone());
        clients.spawn(async move {
            let mut took = Vec::new();
            while clock.runs() {
                let began = Instant::now();
                sqlx::query("insert into bare (id) values ($1)").bind(Uuid::now_v7()).execute(&pool).await?;
                took.extend(clock.counts(began));
            }
            Ok::<_, sqlx::Error>(took)
        });
    }
    let mut took = Vec::new();
    while let Some(client) = clients.join_next().await {
        took.extend(client??);
    }
    pool.close().await;
    Ok(Done::new(took, &clock))
}

async fn commits(url: String, sizes: &Sizes) -> Result<Done> {
    let client = move |_: usize, clock: load::Clock| {
        let url = url.clone();
        async move {
            let mut connection = <sqlx::PgConnection as sqlx::Connection>::connect(&url).await?;
            let one = async || {
                sqlx::query("insert into bare (id) values ($1)").bind(Uuid::now_v7()).execute(&mut connection).await?;
                Ok(())
            };
            let took = clock.repeat(one).await;
            note_load();
            took
        }
    };
    load::run(sizes.clients, sizes.time, client).await
}

/// Stores the CPU time of the load's thread so far; the last client to end stores the whole time.
fn note_load() {
    thread_local!(static NOTED: std::cell::Cell<f64> = const { std::cell::Cell::new(0.0) });
    let now = machine::threads_cpu(THREAD);
    NOTED.with(|noted| {
        let more = (now - noted.replace(now)) * 1e6;
        LOAD.fetch_add(more.max(0.0) as u64, std::sync::atomic::Ordering::Relaxed);
    });
}

/// A request for three pods that may run on any of eight members.
pub(super) fn any_of_eight(members: usize, n: usize) -> DecisionRequest {
    request(Series::AnyOfEight, members, n)
}

/// A request for three pods. Every request is about another app.
fn request(series: Series, members: usize, n: usize) -> DecisionRequest {
    let keys: Vec<MemberKey> = (0..members).map(|at| MemberKey(world::key(at, PROVIDERS))).collect();
    let requests = Amounts::pod(10, 16 << 20);
    let group = PodGroup { workload: format!("Deployment/{APP}"), replicas: 3, requests, ..PodGroup::default() };
    let named = |key: &MemberKey| Element {
        cluster_provider: Some(key.provider().into()),
        cluster: Some(key.cluster().into()),
        ..Element::default()
    };
    let labelled =
        |at: usize| Element { cluster_provider: Some(world::provider(at)), cluster_label: Some("all".into()), ..Element::default() };
    let chosen: Vec<MemberKey> = (0..NAMED.min(members)).map(|at| keys[(n * 13 + at * 12) % members].clone()).collect();
    let (any_of, logical_cloud) = match series {
        Series::AnyByLabel => ((0..PROVIDERS.min(members)).map(labelled).collect(), keys),
        _ => (chosen.iter().map(named).collect(), chosen),
    };
    let terms =
        PlacementTerms { intent: Intent { any_of, ..Intent::default() }, logical_cloud: logical_cloud.into(), ..PlacementTerms::default() };
    let app = AppRequest { app: APP.into(), demand: Demand { groups: vec![group], ..Demand::default() }, terms };
    let name = format!("bench-{n}");
    let dig = DigRef { id: Uuid::now_v7(), project: "default".into(), composite_app: name.clone(), version: "v1".into(), name };
    DecisionRequest { dig, apps: vec![app], overflow: false, refused: Vec::new(), operation: Uuid::now_v7(), fence: 1 }
}

/// Placeholder of the app's name in a template, as long as a UUID without hyphens.
const APP: &str = "app-0123456789abcdef0123456789ab";

/// A request body in which only the app's name is replaced, which is cheap.
pub(super) struct Template {
    body: Vec<u8>,
    places: Vec<usize>,
}

impl Template {
    pub(super) fn new(request: &DecisionRequest) -> Result<Self> {
        let body = serde_json::to_string(request)?;
        let places = body.match_indices(APP).map(|(at, _)| at).collect();
        Ok(Self { body: body.into_bytes(), places })
    }

    pub(super) fn next(&mut self, address: SocketAddr, token: &str) -> Result<Request<Full<Bytes>>> {
        let id = Uuid::now_v7();
        let mut name = [0; 32];
        id.simple().encode_lower(&mut name);
        for at in &self.places {
            self.body[*at..*at + name.len()].copy_from_slice(&name);
        }
        let request = Request::put(format!("/internal/decisions/{id}"))
            .header(header::HOST, address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/json");
        Ok(request.body(Full::new(Bytes::copy_from_slice(&self.body)))?)
    }
}
