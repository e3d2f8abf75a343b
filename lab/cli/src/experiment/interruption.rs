//! `drover experiment interruption`: what users notice while an app moves, beside two ways that do not wait for users.
//!
//! The same load goes through the same data path to pods that answer on this machine; the clusters are simulated. Only the way of moving
//! differs: Drover's relocation; delete first and start after, as Kubernetes' preemption does; and start first and delete the old copy as
//! soon as the new pods are Running, as the relocation paper's code does.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use drover_api::operations::{Operation, OperationState};
use drover_api::scheduling::MemberKey;
use drover_api::traffic::{CopyEndpoints, PortEndpoints, RouteBackend, RouteList, RouteProtocol, RouteTable};
use drover_kubesim::{ClusterSpec, Sim};
use drover_report::{Check, Report, Table, percentile};
use drover_service::{Common as ServiceCommon, FeedHub, Peers};
use drover_store::private_postgres::Durability;
use indicatif::{ProgressBar, ProgressStyle};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use url::Url;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use super::{Common, finish};
use crate::bench::{cleanup, machine};
use crate::dev::sim::Simulated;
use crate::load::{Load, Outcome, Plan};
use drover::globals::Format;
use drover::hub::Client;
use drover::stack::{Options, Stack};

/// `drover experiment interruption`.
#[derive(Debug, Args)]
#[command(after_help = "\
A Deployment of two pods, which answer two seconds after they run, moves to and fro between two clusters under an open load: requests on kept and on new connections, one of 50 \
with an answer after two seconds, WebSocket sessions, gRPC streams and uploads of 20 MB. The clusters are simulated; pods and requests are real. Nothing is drawn, so the seed changes nothing.

Examples:
  drover experiment interruption
  drover experiment interruption --moves 3 --rate 50 --strict")]
pub struct InterruptionArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: Common,
    /// Number of moves of each way.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub moves: u32,
    /// Requests per second.
    #[arg(long, default_value_t = 200.0)]
    pub rate: f64,
}

const HOST: &str = "shop.example";
const PORT: u16 = 8080;
const CLUSTERS: [&str; 2] = ["private-a", "private-b"];
/// Load before the first move and after the last one.
const QUIET: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of one way.
struct Sample {
    way: &'static str,
    outcome: Outcome,
    /// When the moves began and ended, since the load began.
    moves: Vec<(Duration, Duration)>,
}

/// Measures, and delivers the report; the exit code of the command. Leaves no process behind, even when it is interrupted.
///
/// # Errors
/// A part cannot be started, a request to Drover fails, or a file cannot be written.
pub fn run(args: InterruptionArgs, format: Format) -> Result<ExitCode> {
    cleanup::run(measure(args, format))
}

async fn measure(args: InterruptionArgs, format: Format) -> Result<ExitCode> {
    let described = machine::describe().await?;
    let load = machine::load();
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} moves, {elapsed} so far, {eta} left")?;
    let bar = ProgressBar::new(3 * u64::from(args.moves)).with_style(style);
    let samples = [
        by_drover(&args, &bar).await.context("Drover's way")?,
        by_hand(&args, "delete first, start after", Way::DeleteFirst, &bar).await.context("delete first")?,
        by_hand(&args, "wait for Running only", Way::RunningOnly, &bar).await.context("wait for Running only")?,
    ];
    bar.finish_and_clear();
    let mut report = report(&samples, args.moves);
    report.tables.insert(0, described);
    report.findings.insert(0, format!("{} moves each, {} requests/s; load of the machine {load} before", args.moves, args.rate));
    finish(&report, &args.common, format)
}

fn manifests() -> (Value, Value) {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"kit/start-delay": "300ms", "kit/ready-delay": "2s"}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
                "name": "main", "image": "registry.example/app:1", "ports": [{"containerPort": PORT}],
                "resources": {"requests": {"cpu": "300m", "memory": "256Mi"}}}]},
        }},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": PORT}]},
    });
    (deployment, service)
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn plan(args: &InterruptionArgs, port: u16) -> Plan {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    Plan { address, host: HOST.to_owned(), rate: args.rate, slow_every: 50, streams: true }
}

/// Makes the moves under load.
async fn under_load(
    args: &InterruptionArgs,
    way: &'static str,
    port: u16,
    bar: &ProgressBar,
    mut one: impl AsyncFnMut(usize) -> Result<()>,
) -> Result<Sample> {
    let (load, began) = (Load::start(plan(args, port))?, Instant::now());
    sleep(QUIET).await;
    let mut moves = Vec::new();
    for number in 0..args.moves as usize {
        let from = began.elapsed();
        one(number).await?;
        moves.push((from, began.elapsed()));
        bar.inc(1);
    }
    sleep(QUIET).await;
    Ok(Sample { way, outcome: load.end().await, moves })
}

async fn by_drover(args: &InterruptionArgs, bar: &ProgressBar) -> Result<Sample> {
    let data = tempfile::tempdir()?;
    let simulated = Simulated::answering(&CLUSTERS, 1, "4", "8Gi").await?;
    let stack = Stack::start(Options {
        data: data.path().to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        database_url: None,
        api_token: None,
        allowed_hosts: Vec::new(),
        local_clusters: true,
        tls: None,
        durability: Durability::ThrowAway,
        own_ports: false,
        flags: Vec::new(),
    })
    .await?;
    let client = Client::new(stack.url.clone(), None)?;
    let port = free_port()?;
    let sample = drover_moves(args, &client, &simulated, port, bar).await;
    stack.stop().await;
    sample
}

async fn drover_moves(args: &InterruptionArgs, client: &Client, simulated: &Simulated, port: u16, bar: &ProgressBar) -> Result<Sample> {
    use drover::application::prepare::prepare;
    use drover::application::wishes::Wishes;
    use drover::application::{Application, operation_of, verb};
    use drover::commands::cluster;
    use drover::session::Session;
    use drover::{clusters as registered, manifests as uploads};
    let session = Session { client: client.clone(), project: "default".into(), format: Format::Table };
    for (name, kubeconfig) in CLUSTERS.iter().zip(&simulated.kubeconfigs) {
        cluster::add(&session, name, "onprem", kubeconfig, &[], Some(1)).await?;
    }
    until(async || {
        let clusters = registered::all(&session).await?;
        Ok(clusters.iter().filter(|c| c.age_ms.is_some() && !c.nodes.is_empty()).count() == CLUSTERS.len())
    })
    .await?;
    let project = json!({"metadata": {"name": "default"}, "spec": {"allowDependants": true}});
    client.upsert("/v2/projects", "default", &project).await?;
    let (deployment, service) = manifests();
    let files = uploads::split_text(&format!("{deployment}\n---\n{service}"))?;
    let group = Application::new(&session, "shop");
    let wishes = Wishes { movable: Some((true, 5)), ..Wishes::default() };
    prepare(&session, &group, &files, &wishes).await?;
    let spec = json!({"app": "web", "service": "web", "servicePort": 80, "host": HOST, "port": port});
    client.upsert(&format!("{}/routes", group.group), "shop", &json!({"metadata": {"name": "shop"}, "spec": spec})).await?;
    let verb = verb(&session, &group).await?;
    let id = operation_of(&client.post(&format!("{}/{verb}", group.group), None).await?)?;
    succeeded(client, &id).await?;
    until(async || Ok(client.get::<RouteList>("/v2/routes").await?.items.iter().all(|route| route.state == "serving"))).await?;
    under_load(args, "Drover", port, bar, async |_| {
        let clusters = registered::all(&session).await?;
        let home = clusters.iter().find(|c| !c.apps.is_empty()).context("the app runs nowhere")?.cluster.clone();
        let order = json!({"kind": "drain", "clusterProvider": "onprem", "cluster": home});
        let made = client.post("/v2/plans", Some(&order)).await?;
        let apply = format!("/v2/plans/{}/apply", made.body["id"].as_str().unwrap_or_default());
        let id = operation_of(&client.post(&apply, None).await?)?;
        succeeded(client, &id).await?;
        client.delete(&format!("/v2/cluster-providers/onprem/clusters/{home}/cordon")).await?;
        until(async || Ok(registered::all(&session).await?.iter().all(|c| c.cordoned.is_none()))).await
    })
    .await
}

async fn succeeded(client: &Client, id: &str) -> Result<()> {
    loop {
        let operation: Operation = client.get(&format!("/v2/operations/{id}?wait=10s")).await?;
        match operation.state {
            OperationState::Succeeded => return Ok(()),
            _ if operation.finished_at.is_some() => bail!("{}: {}", operation.message, operation.reasons.join("; ")),
            _ => {}
        }
    }
}

async fn until(mut ask: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !ask().await? {
        anyhow::ensure!(began.elapsed() < PATIENCE, "something does not happen within {} s", PATIENCE.as_secs());
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// How a baseline moves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    DeleteFirst,
    RunningOnly,
}

/// A baseline: the data path gets the ready endpoints of both clusters, each with the same weight, as a load balancer would.
async fn by_hand(args: &InterruptionArgs, way: &'static str, how: Way, bar: &ProgressBar) -> Result<Sample> {
    let (sim, dir) = (Sim::new(), tempfile::tempdir()?);
    for name in CLUSTERS {
        sim.add_cluster(name, ClusterSpec { stand_ins: true, ..ClusterSpec::with_nodes(1, "4", "8Gi") });
    }
    let port = free_port()?;
    let (routes, endpoints) = (FeedHub::new(), FeedHub::new());
    let copies: [(Uuid, &str); 2] = CLUSTERS.map(|name| (Uuid::new_v4(), name));
    let id = Uuid::new_v4();
    let backends = copies.map(|(binding, name)| RouteBackend { binding, member: MemberKey::new("onprem", name), weight: 100 });
    let route = RouteTable {
        id,
        name: "shop".to_owned(),
        protocol: RouteProtocol::Http,
        host: Some(HOST.to_owned()),
        port,
        service: "web".to_owned(),
        service_port: String::new(),
        probe: None,
        hold_seconds: 0,
        gateway: None,
        backends: backends.into(),
    };
    routes.publish(id.to_string(), Some(route));
    let common = ServiceCommon::new("postgres://nowhere/", "token", Peers::default()).scoped("experiment");
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let at = Url::parse(&format!("http://{}/", listener.local_addr()?))?;
    let feeds = OpenApiRouter::<()>::new()
        .routes(routes.route("/internal/feeds/routes", "routes_feed"))
        .routes(endpoints.route("/internal/feeds/endpoints", "endpoints_feed"));
    let feeds = drover_service::serve(listener, drover_service::router(feeds, &common), &common);
    let peers = Peers { orchestrator: at.clone(), resource_synchronizer: at, ..Peers::default() };
    let config = drover_traffic::Config {
        max_route_connections: 16_384,
        max_route_connections_per_address: None,
        listen: ([127, 0, 0, 1], 0).into(),
        address: [127, 0, 0, 1].into(),
        dir: dir.path().to_owned(),
        tls_dir: None,
        reuse_port: false,
        drain_seconds: 1,
    };
    let path = drover_traffic::start(config, ServiceCommon::new("postgres://nowhere/", "token", peers)).await?;
    let follower = tokio::spawn(follow(sim.clone(), copies, Arc::new(endpoints)));

    start(&sim, CLUSTERS[0]).await?;
    until(async || ready(&sim, CLUSTERS[0]).await).await?;
    sleep(Duration::from_secs(1)).await;
    let sample = under_load(args, way, port, bar, async |number| {
        let (from, to) = (CLUSTERS[number % 2], CLUSTERS[(number + 1) % 2]);
        if how == Way::DeleteFirst {
            stop(&sim, from).await?;
            until(async || gone(&sim, from).await).await?;
            start(&sim, to).await?;
        } else {
            start(&sim, to).await?;
            until(async || running(&sim, to).await).await?;
            stop(&sim, from).await?;
        }
        until(async || Ok(ready(&sim, to).await? && gone(&sim, from).await?)).await
    })
    .await;
    follower.abort();
    path.stop().await;
    feeds.stop().await;
    sample
}

/// Publishes the ready endpoints of both clusters until it is dropped.
async fn follow(sim: Sim, copies: [(Uuid, &'static str); 2], hub: Arc<FeedHub<CopyEndpoints>>) {
    loop {
        for (binding, name) in copies {
            let slices: Api<EndpointSlice> = Api::namespaced(sim.client(name), "default");
            let Ok(list) = slices.list(&ListParams::default()).await else { continue };
            let ready = list.items.iter().flat_map(|slice| &slice.endpoints).filter(|endpoint| {
                let conditions = endpoint.conditions.clone().unwrap_or_default();
                conditions.ready.unwrap_or(true) && !conditions.terminating.unwrap_or(false)
            });
            let addresses = ready.filter_map(|endpoint| Some(SocketAddr::new(endpoint.addresses.first()?.parse().ok()?, PORT))).collect();
            let (namespace, service) = ("default".to_owned(), "web".to_owned());
            let port = PortEndpoints { namespace, service, addresses, ..PortEndpoints::default() };
            let value = CopyEndpoints { binding, member: MemberKey::new("onprem", name), ports: vec![port] };
            hub.publish_if_changed(binding.to_string(), Some(value));
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn start(sim: &Sim, cluster: &str) -> Result<()> {
    let (deployment, service) = manifests();
    let services: Api<Service> = Api::namespaced(sim.client(cluster), "default");
    if services.get_opt("web").await?.is_none() {
        services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    }
    let deployments: Api<Deployment> = Api::namespaced(sim.client(cluster), "default");
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment)?).await?;
    Ok(())
}

async fn stop(sim: &Sim, cluster: &str) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(sim.client(cluster), "default");
    deployments.delete("web", &DeleteParams::background()).await?;
    Ok(())
}

async fn pods(sim: &Sim, cluster: &str) -> Result<Vec<Pod>> {
    Ok(Api::<Pod>::namespaced(sim.client(cluster), "default").list(&ListParams::default()).await?.items)
}

async fn running(sim: &Sim, cluster: &str) -> Result<bool> {
    let pods = pods(sim, cluster).await?;
    let running = pods.iter().filter(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running"));
    Ok(running.count() == 2)
}

async fn ready(sim: &Sim, cluster: &str) -> Result<bool> {
    let deployments: Api<Deployment> = Api::namespaced(sim.client(cluster), "default");
    Ok(deployments.get_opt("web").await?.and_then(|deployment| deployment.status?.ready_replicas) == Some(2))
}

async fn gone(sim: &Sim, cluster: &str) -> Result<bool> {
    Ok(pods(sim, cluster).await?.is_empty())
}

/// The time in which requests failed: tenths of seconds with at least one failure.
fn without_service(outcome: &Outcome) -> f64 {
    let mut tenths: Vec<u128> = outcome.failed_at.iter().map(|at| at.as_millis() / 100).collect();
    tenths.sort_unstable();
    tenths.dedup();
    tenths.len() as f64 / 10.0
}

fn report(samples: &[Sample], moves: u32) -> Report {
    let mut report = Report::new("interruption");
    let mut table = Table::new(
        "interruption",
        [
            "way",
            "served",
            "failed",
            "failed per move",
            "time without service per move [s]",
            "one move [s]",
            "p50 before [ms]",
            "p99 before [ms]",
            "p50 in moves [ms]",
            "p99 in moves [ms]",
        ],
    );
    for sample in samples {
        let took: Vec<f64> = sample.moves.iter().map(|(from, to)| (*to - *from).as_secs_f64()).collect();
        let ms = |within: &dyn Fn(Duration) -> bool, share: f64| {
            let took: Vec<f64> =
                sample.outcome.latencies.iter().filter(|(at, _)| within(*at)).map(|(_, took)| took.as_secs_f64() * 1e3).collect();
            format!("{:.1}", percentile(&took, share))
        };
        let before = |at: Duration| at < QUIET;
        let during = |at: Duration| sample.moves.iter().any(|(from, to)| (*from..*to).contains(&at));
        table.row([
            sample.way.to_owned(),
            sample.outcome.served.to_string(),
            sample.outcome.failed.to_string(),
            format!("{:.1}", sample.outcome.failed as f64 / f64::from(moves)),
            format!("{:.2}", without_service(&sample.outcome) / f64::from(moves)),
            format!("{:.1}", percentile(&took, 0.5)),
            ms(&before, 0.5),
            ms(&before, 0.99),
            ms(&during, 0.5),
            ms(&during, 0.99),
        ]);
        report.finding(format!(
            "{}: {} requests were served and {} failed in {moves} moves{}",
            sample.way,
            sample.outcome.served,
            sample.outcome.failed,
            sample.outcome.failures.first().map(|first| format!(", the first with: {first}")).unwrap_or_default()
        ));
    }
    report.tables.push(table);
    let failed = |at: usize| samples.get(at).map_or(f64::NAN, |sample| sample.outcome.failed as f64);
    report.checks.push(Check::at_most("failed requests, Drover", 0.0, failed(0), ""));
    report.checks.push(Check::at_least("failed requests, delete first", 1.0, failed(1), ""));
    report.checks.push(Check::at_least("failed requests, wait for Running only", 1.0, failed(2), ""));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(way: &'static str, failed_at: &[u64]) -> Sample {
        let failed_at: Vec<Duration> = failed_at.iter().map(|ms| Duration::from_millis(*ms)).collect();
        let latencies = vec![(Duration::from_secs(1), Duration::from_millis(2)), (Duration::from_secs(6), Duration::from_millis(4))];
        let outcome = Outcome { served: 100, failed: failed_at.len() as u64, failed_at, latencies, ..Outcome::default() };
        Sample { way, outcome, moves: vec![(Duration::from_secs(5), Duration::from_secs(8))] }
    }

    #[test]
    fn report_counts_failures_and_the_time_in_which_they_happened() {
        let report = report(&[sample("Drover", &[]), sample("a", &[6_010, 6_050, 6_200]), sample("b", &[7_000])], 1);
        assert_eq!(report.tables[0].rows[1][2..5], ["3", "3.0", "0.20"]);
        assert!(report.ok());
        assert!(!super::report(&[sample("Drover", &[6_000]), sample("a", &[1]), sample("b", &[1])], 1).ok());
    }
}
