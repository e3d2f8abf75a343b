//! Real control planes: time from the request to instantiate until a watch on each control plane has seen the objects.
//!
//! In the small size the members are simulated, because control planes take long to start.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use drover_report::{Check, Report, Table};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};

use super::process::{self, Members, Simulated};
use super::stack::{Stack, folder};
use super::world::{self, App};
use super::{Size, cell, machine, spread};
use crate::dev::kube as local;

const MEMBERS: u16 = 3;
const PROVIDERS: usize = 1;

/// By name of a Deployment: the times at which each member first had it.
type Seen = Arc<Mutex<HashMap<String, Vec<Instant>>>>;

/// A stack with three members, and a watch on each.
struct WatchedStack {
    stack: Stack,
    seen: Seen,
    watches: tokio::task::JoinSet<()>,
    planes: Option<local::Set>,
}

impl WatchedStack {
    async fn start(size: Size) -> Result<Self> {
        let folder = folder()?;
        let nodes = size.of(20, 2);
        let (simulated, planes, kubeconfigs): (Option<Simulated>, _, Vec<PathBuf>) = match size {
            Size::Small => {
                let simulated = process::simulate(Members::new(MEMBERS.into(), nodes.into()), &folder.path().join("sim")).await?;
                let kubeconfigs = simulated.kubeconfigs.clone();
                (Some(simulated), None, kubeconfigs)
            }
            Size::Full => {
                let set = local::Set { dir: Some(folder.path().join("kube")) };
                let up = local::Up {
                    clusters: MEMBERS,
                    names: Vec::new(),
                    nodes,
                    cpu: Some("8".to_owned()),
                    memory: None,
                    metrics: false,
                    real: false,
                    owner: Some(std::process::id()),
                    set: set.clone(),
                };
                let clusters = local::up(&up).await.context("the control planes")?;
                (None, Some(set), clusters.into_iter().map(|cluster| cluster.kubeconfig).collect())
            }
        };
        let seen = Seen::default();
        let mut watches = tokio::task::JoinSet::new();
        for file in &kubeconfigs {
            watches.spawn(watch(client(file).await?, seen.clone()));
        }
        let stack = Stack::over(folder, simulated, &kubeconfigs, nodes.into(), PROVIDERS, |_| vec!["all".to_owned()]).await?;
        Ok(Self { stack, seen, watches, planes })
    }

    /// Time from `began` until the last member had this app; `None` until then.
    fn seen(&self, app: &str, began: Instant) -> Option<Duration> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(app).filter(|seen| seen.len() == usize::from(MEMBERS)).and_then(|seen| seen.iter().max()).map(|last| *last - began)
    }

    async fn wait(&self, apps: &[App], began: &[Instant]) -> Result<Vec<Duration>> {
        let all = async || Ok(apps.iter().zip(began).map(|(app, began)| self.seen(&app.name, *began)).collect::<Option<Vec<_>>>());
        world::until(Duration::from_secs(300), all).await
    }

    async fn stop(mut self) -> Result<()> {
        self.watches.shutdown().await;
        match self.planes {
            Some(set) => local::down(&local::Down { set, ..local::Down::default() }).await,
            None => Ok(()),
        }
    }
}

async fn client(kubeconfig: &PathBuf) -> Result<kube::Client> {
    let text = tokio::fs::read_to_string(kubeconfig).await?;
    let config = kube::Config::from_custom_kubeconfig(kube::config::Kubeconfig::from_yaml(&text)?, &Default::default()).await?;
    Ok(kube::Client::try_from(config)?)
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

/// Deploys apps at a steady rate. The first app does not count: with it Drover discovers the API of each member and starts watching.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn latency(size: Size, report: &mut Report) -> Result<()> {
    let seconds = size.of(60, 2);
    let world = WatchedStack::start(size).await?;
    let mut table = Table::new(
        "latency",
        ["apps a second", "apps", "p50 [ms]", "p90 [ms]", "p99 [ms]", "most [ms]", "CPU ms per app: drover", "Postgres"],
    );
    let first = apps("first", 1, |_| 1);
    first[0].prepare(&world.stack.client).await?;
    let began = Instant::now();
    first[0].deploy(&world.stack.client).await?;
    world.wait(&first, &[began]).await?;
    for (rate, reach) in [(1, 150.0), (5, 300.0)] {
        let apps = apps(&format!("rate-{rate}"), rate * seconds, |_| 1);
        world::each(apps.len(), async |at| apps[at].prepare(&world.stack.client).await).await?;
        let before = world.stack.cpu()?;
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate)?);
        let mut orders = tokio::task::JoinSet::new();
        let mut began = Vec::new();
        for app in &apps {
            ticks.tick().await;
            began.push(Instant::now());
            let (app, client) = (app.clone(), world.stack.client.clone());
            orders.spawn(async move { app.instantiate(&client).await });
        }
        while let Some(order) = orders.join_next().await {
            order??;
        }
        let took = world.wait(&apps, &began).await?;
        let (cpu, _) = world.stack.cpu()?.since(&before);
        let [p50, p90, p99, most] = spread(&took);
        let mut row = vec![rate.to_string(), apps.len().to_string()];
        row.extend([p50, p90, p99, most, cpu.drover * 1e3 / apps.len() as f64, cpu.postgres * 1e3 / apps.len() as f64].map(cell));
        table.row(row);
        report.checks.push(Check::at_most(format!("instantiate to the object in {MEMBERS} members at {rate}/s, p99"), reach, p99, "ms"));
    }
    report.tables.push(table);
    world.stop().await
}

/// Deploys many apps at the same time.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn rollout(size: Size, report: &mut Report) -> Result<()> {
    let (count, rounds) = size.of((200, 3), (5, 1));
    let world = WatchedStack::start(size).await?;
    let mut table =
        Table::new("rollout", ["round", "all there [s]", "apps/s", "CPU ms per app: drover", "Postgres", "everything on this machine"]);
    let mut rates = Vec::new();
    for round in 0..rounds {
        let apps = apps(&format!("rollout-{round}"), count, |at| 3 + u32::from(at % 2 == 1));
        world::each(count, async |at| apps[at].prepare(&world.stack.client).await).await?;
        let (before, busy, began) = (world.stack.cpu()?, machine::busy(), Instant::now());
        world::each(count, async |at| apps[at].instantiate(&world.stack.client).await.map(drop)).await?;
        let took = world.wait(&apps, &vec![began; count]).await?.into_iter().max().unwrap_or_default().as_secs_f64();
        let (cpu, _) = world.stack.cpu()?.since(&before);
        ensure!(took > 0.0, "nothing was rolled out");
        rates.push(count as f64 / took);
        let each = [cpu.drover, cpu.postgres, machine::busy() - busy].map(|seconds| cell(seconds * 1e3 / count as f64));
        let mut row = vec![round.to_string(), cell(took), cell(count as f64 / took)];
        row.extend(each);
        table.row(row);
    }
    report.tables.push(table);
    report.checks.push(Check::at_least(
        format!("{count} apps at once to {MEMBERS} members"),
        30.0,
        drover_report::percentile(&rates, 0.5),
        "apps/s",
    ));
    world.stop().await
}

fn apps(name: &str, count: usize, replicas: impl Fn(usize) -> u32) -> Vec<App> {
    let intent = world::all_with("all", PROVIDERS);
    (0..count).map(|at| App { name: format!("{name}-{at:03}"), intent: intent.clone(), replicas: replicas(at) }).collect()
}
