//! Real control planes: time from the request to instantiate until a watch on each control plane has seen the objects.
//!
//! Each measurement is followed by the same with a [bare client](super::bare) on the same control planes, and compared with it.
//!
//! In the small size the members are simulated, because control planes take long to start.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use drover_report::{Check, Report, Table};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};

use super::bare::{Bare, client};
use super::cores::Apart;
use super::planes::Planes;
use super::process::Members;
use super::speed::Speed;
use super::stack::{Stack, folder};
use super::world::{self, App};
use super::{Size, cell, machine, spread};

const MEMBERS: usize = 3;
const PROVIDERS: usize = 1;

/// By name of a Deployment: the times at which each member first had it.
type Seen = Arc<Mutex<HashMap<String, Vec<Instant>>>>;

/// A stack with three members, and a watch on each.
struct WatchedStack {
    stack: Stack,
    bare: Bare,
    seen: Seen,
    watches: tokio::task::JoinSet<()>,
    planes: Planes,
}

impl WatchedStack {
    /// Members with so many nodes, each of which has room for 110 pods.
    async fn start(size: Size, nodes: usize) -> Result<Self> {
        let folder = folder()?;
        let mut planes = Planes::start(size == Size::Full, Members::new(MEMBERS, nodes), folder.path()).await?;
        let kubeconfigs = planes.kubeconfigs.clone();
        let seen = Seen::default();
        let mut watches = tokio::task::JoinSet::new();
        for file in &kubeconfigs {
            watches.spawn(watch(client(file).await?, seen.clone()));
        }
        let bare = Bare::new(&kubeconfigs).await?;
        let stack = Stack::over(folder, planes.simulated.take(), &kubeconfigs, nodes, PROVIDERS, |_| vec!["all".to_owned()]).await?;
        Ok(Self { stack, bare, seen, watches, planes })
    }

    /// Process ids of the programs of the members.
    fn member_programs(&self) -> Result<Vec<u32>> {
        match &self.stack.simulated {
            Some(simulated) => Ok(vec![simulated.program.pid()]),
            None => self.planes.programs(),
        }
    }

    /// Time from `began` until the last member had this app; `None` until then.
    fn seen(&self, app: &str, began: Instant) -> Option<Duration> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(app).filter(|seen| seen.len() == MEMBERS).and_then(|seen| seen.iter().max()).map(|last| *last - began)
    }

    async fn wait(&self, apps: &[App], began: &[Instant]) -> Result<Vec<Duration>> {
        let all = async || Ok(apps.iter().zip(began).map(|(app, began)| self.seen(&app.name, *began)).collect::<Option<Vec<_>>>());
        world::until(Duration::from_secs(300), all).await
    }

    async fn stop(mut self) -> Result<()> {
        self.watches.shutdown().await;
        self.stack.stop(self.planes).await
    }
}

/// Records when Deployments appear, until it is dropped.
async fn watch(client: kube::Client, seen: Seen) {
    let api: Api<PartialObjectMeta<Deployment>> = Api::namespaced(client, "default");
    let events = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    let mut events = std::pin::pin!(events);
    let mut known = std::collections::HashSet::new();
    while let Some(event) = events.next().await {
        let now = Instant::now();
        if let Some(name) = event.ok().and_then(|object| object.metadata.name)
            && known.insert(name.clone())
        {
            seen.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default().push(now);
        }
    }
}

/// Who creates the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Drover,
    Bare,
}

impl By {
    const BOTH: [Self; 2] = [Self::Drover, Self::Bare];

    fn name(self) -> &'static str {
        match self {
            Self::Drover => "drover",
            Self::Bare => "bare",
        }
    }
}

/// Who uses which cores while objects are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cores {
    /// Everything uses all of them.
    Shared,
    /// The members use one half of them and everything else the other, as if the members were other machines.
    Apart,
}

impl Cores {
    /// Those that this machine can have.
    fn possible() -> Result<&'static [Self]> {
        let all = &[Self::Shared, Self::Apart];
        Ok(if machine::cores()?.len() > 1 { all } else { &all[..1] })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Apart => "apart",
        }
    }
}

/// CPU seconds until the objects of some apps were there.
#[derive(Clone, Copy)]
struct Spent {
    drover: f64,
    postgres: f64,
    /// Everything on the machine, the control planes too.
    all: f64,
    /// CPU milliseconds of a task that is always the same, see [`Speed`].
    task_ms: f64,
}

impl Spent {
    /// Milliseconds per app, as cells; those of Drover only if the apps were Drover's. Then those of the task.
    fn cells(&self, by: By, apps: usize) -> [String; 4] {
        let own = |seconds: f64| if by == By::Drover { cell(seconds * 1e3 / apps as f64) } else { "-".to_owned() };
        [own(self.drover), own(self.postgres), cell(self.all * 1e3 / apps as f64), cell(self.task_ms)]
    }

    /// Of several rounds of as many apps. That of the task is the mean.
    fn of(rounds: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> f64| rounds.iter().map(of).sum::<f64>();
        let task_ms = sum(|spent| spent.task_ms) / rounds.len().max(1) as f64;
        Self { drover: sum(|spent| spent.drover), postgres: sum(|spent| spent.postgres), all: sum(|spent| spent.all), task_ms }
    }

    /// Drover with Postgres, in milliseconds per app.
    fn own(&self, apps: usize) -> f64 {
        (self.drover + self.postgres) * 1e3 / apps as f64
    }
}

impl WatchedStack {
    /// Creates the objects of an app; returns as soon as that is ordered.
    async fn order(&self, by: By, app: &App) -> Result<()> {
        match by {
            By::Drover => app.instantiate(&self.stack.client).await.map(drop),
            By::Bare => self.bare.create(app).await,
        }
    }

    /// Prepares apps, waits until nothing is under way, lets `order` create their objects, and waits for them. Returns how long each
    /// took, and the CPU time until then.
    async fn measure(
        &self,
        by: By,
        cores: Cores,
        apps: &[App],
        order: impl AsyncFnOnce(&Self, &[App]) -> Result<Vec<Instant>>,
    ) -> Result<(Vec<Duration>, Spent)> {
        if by == By::Drover {
            world::each(apps.len(), async |at| apps[at].prepare(&self.stack.client).await).await?;
        }
        self.bare.settled().await?;
        let apart = (cores == Cores::Apart).then(|| Apart::new(&self.member_programs()?)).transpose()?;
        let (speed, before, busy) = (Speed::watch(), self.stack.cpu()?, machine::busy());
        let began = order(self, apps).await?;
        let took = self.wait(apps, &began).await?;
        let (cpu, _) = self.stack.cpu()?.since(&before);
        let spent = Spent { drover: cpu.drover, postgres: cpu.postgres, all: machine::busy() - busy, task_ms: speed.task_ms() };
        drop(apart);
        let last = took.iter().max().copied().unwrap_or_default().as_secs_f64();
        eprintln!("  {}, cores {}: {} apps, the slowest one after {last:.2} s", by.name(), cores.name(), apps.len());
        if by == By::Bare {
            self.bare.settled().await?;
            self.bare.remove().await?;
        }
        Ok((took, spent))
    }
}

/// Deploys apps at a steady rate, in turn with the bare client: the speed of a virtual machine changes within a minute, and one of the two
/// would get the slow one. The first app does not count: with it Drover discovers the API of each member and starts watching.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn latency(size: Size, report: &mut Report) -> Result<()> {
    /// p99 of Drover beyond that of the bare client, in milliseconds.
    const BEYOND: f64 = 60.0;
    let (seconds, rounds) = size.of((20, 3), (2, 1));
    let world = WatchedStack::start(size, size.of(30, 2)).await?;
    let heads = ["apps a second", "client", "apps", "load before", "p50 [ms]", "p90 [ms]", "p99 [ms]", "most [ms]"];
    let mut table = Table::new("latency", heads.into_iter().chain(CPU));
    let first = apps("first", 1, |_| 1);
    first[0].prepare(&world.stack.client).await?;
    let began = Instant::now();
    first[0].deploy(&world.stack.client).await?;
    world.wait(&first, &[began]).await?;
    for (rate, reach) in [(1, 150.0), (5, 300.0)] {
        let mut measured = By::BOTH.map(|by| (by, Vec::new(), Vec::new(), Vec::new()));
        for round in 0..rounds {
            for (by, times, costs, loads) in &mut measured {
                let apps = apps(&format!("{}-{rate}-{round}", by.name()), rate * seconds, |_| 1);
                loads.push(machine::load());
                let (took, spent) =
                    world.measure(*by, Cores::Shared, &apps, async |world, apps| steady(world, *by, rate, apps).await).await?;
                times.extend(took);
                costs.push(spent);
            }
        }
        let slow = measured.map(|(by, times, costs, loads)| {
            let of_all = spread(&times);
            let mut row = vec![rate.to_string(), by.name().to_owned(), times.len().to_string(), loads.join("; ")];
            row.extend(of_all.map(cell));
            row.extend(Spent::of(&costs).cells(by, times.len()));
            table.row(row);
            of_all[2]
        });
        let what = format!("instantiate to the object in {MEMBERS} members at {rate}/s, p99");
        report.checks.push(Check::at_most(&what, reach, slow[0], "ms"));
        report.checks.push(Check::at_most(format!("{what}, beyond the bare client's"), BEYOND, slow[0] - slow[1], "ms"));
    }
    report.tables.push(table);
    world.stop().await
}

/// Orders so many apps a second, and returns when each was ordered.
async fn steady(world: &WatchedStack, by: By, rate: usize, apps: &[App]) -> Result<Vec<Instant>> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate)?);
    let mut began = Vec::new();
    let mut orders = futures::stream::FuturesUnordered::new();
    for app in apps {
        loop {
            tokio::select! {
                _ = ticks.tick() => break,
                Some(ordered) = orders.next() => ordered?,
            }
        }
        began.push(Instant::now());
        orders.push(world.order(by, app));
    }
    while let Some(ordered) = orders.next().await {
        ordered?;
    }
    Ok(began)
}

/// Heads of the columns of [`Spent::cells`].
const CPU: [&str; 4] = ["CPU ms per app: drover", "Postgres", "everything on this machine", "CPU ms of a fixed task"];

/// Deploys many apps at the same time.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn rollout(size: Size, report: &mut Report) -> Result<()> {
    /// Rate of Drover, relative to that of the bare client.
    const BESIDE_BARE: f64 = 0.7;
    /// CPU of Drover and Postgres, in milliseconds per app.
    const OWN_CPU: f64 = 25.0;
    let (count, rounds) = size.of((200, 3), (5, 1));
    // Room for 4,900 pods at the end, 4,200 of Drover and 700 of the bare client.
    let world = WatchedStack::start(size, size.of(50, 2)).await?;
    let heads = ["round", "cores", "client", "apps", "load before", "all there [s]", "apps/s"];
    let mut table = Table::new("rollout", heads.into_iter().chain(CPU));
    let (mut rates, mut own) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for &cores in Cores::possible()? {
            for by in By::BOTH {
                let apps = apps(&format!("{}-{}-{round}", by.name(), cores.name()), count, |at| 3 + u32::from(at % 2 == 1));
                let load = machine::load();
                let at_once = async |world: &WatchedStack, apps: &[App]| {
                    let began = Instant::now();
                    match by {
                        By::Drover => world::each(apps.len(), async |at| world.order(by, &apps[at]).await).await?,
                        By::Bare => drop(futures::future::try_join_all(apps.iter().map(|app| world.order(by, app))).await?),
                    }
                    Ok(vec![began; apps.len()])
                };
                let (took, spent) = world.measure(by, cores, &apps, at_once).await?;
                let took = took.into_iter().max().unwrap_or_default().as_secs_f64();
                ensure!(took > 0.0, "nothing was rolled out");
                rates.push((cores, by, count as f64 / took));
                // With shared cores it takes longer, and the first statuses of more pods count.
                if by == By::Drover && cores == Cores::Shared {
                    own.push(spent.own(count));
                }
                let mut row = [round.to_string(), cores.name().to_owned(), by.name().to_owned(), count.to_string(), load].to_vec();
                row.extend([took, count as f64 / took].map(cell));
                row.extend(spent.cells(by, count));
                table.row(row);
            }
        }
    }
    report.tables.push(table);
    let what = format!("{count} apps at once to {MEMBERS} members");
    for &cores in Cores::possible()? {
        let median = |by| {
            let rates: Vec<f64> = rates.iter().filter(|(of, client, _)| (*of, *client) == (cores, by)).map(|(_, _, rate)| *rate).collect();
            drover_report::percentile(&rates, 0.5)
        };
        let [rate, bare] = By::BOTH.map(median);
        let what = if cores == Cores::Apart { format!("{what} with cores of their own") } else { what.clone() };
        report.checks.push(Check::at_least(&what, 30.0, rate, "apps/s"));
        report.checks.push(Check::at_least(format!("{what}, beside the bare client"), BESIDE_BARE, rate / bare, "times"));
    }
    report.checks.push(Check::at_most(
        format!("{what}: CPU of Drover and Postgres per app"),
        OWN_CPU,
        drover_report::percentile(&own, 0.5),
        "ms",
    ));
    world.stop().await
}

fn apps(name: &str, count: usize, replicas: impl Fn(usize) -> u32) -> Vec<App> {
    let intent = world::all_with("all", PROVIDERS);
    (0..count).map(|at| App::new(format!("{name}-{at:03}"), intent.clone(), replicas(at))).collect()
}
