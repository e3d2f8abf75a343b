//! Requests of users go on while their app moves between clusters with real kubelets, whose pods are reached directly or by ports of nodes.

use std::time::{Duration, Instant};

use drover_api::operations::Operation;
use drover_api::traffic::RouteList;
use drover_e2e::emco::{Group, free_port};
use drover_e2e::stand_in::{self, HOST, answering, image};
use drover_e2e::{Backend, System, succeeded};
use serde_json::json;

use super::kubelets::move_to_and_fro;

const ON: [&str; 2] = ["onprem/private-a", "aws/public-c"];

/// Deploys the group with a route at this port.
async fn deploy(system: &System, group: &Group, port: u16) -> Operation {
    let route = json!({"host": HOST, "port": port, "shift": {"drainSeconds": 3600}});
    group.deploy_with_route(&system.client, route).await.unwrap()
}

/// Sends this many requests per second, and streams, through this many moves to and fro. None fails.
async fn moves(system: &System, app: &str, port: u16, rate: f64, moves: usize) {
    let load = stand_in::load(&system.client, app, port, rate).await;
    let began = Instant::now();
    // Only for the latency without a move, which is printed and not judged.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let quiet = began.elapsed();
    for made in 0..moves {
        move_to_and_fro(system, made).await;
    }
    let moved = began.elapsed();
    let outcome = load.end().await;
    assert_eq!(outcome.failed, 0, "{} were served: {:#?}", outcome.served, outcome.failures);
    assert!(outcome.served > 0);
    let p99 = |from, to| outcome.quantile(0.99, from, to).unwrap_or_default().as_millis();
    let (before, during) = (p99(Duration::ZERO, quiet), p99(quiet, moved));
    println!("{moves} moves, {} requests served, none failed; p99 before {before} ms, meanwhile {during} ms", outcome.served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_reach_pods_by_ports_of_nodes_while_their_app_moves() {
    if !Backend::kubelets_run_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let system = System::on_kubelets_with(vec![image(folder.path())], &[]).await;
    for (provider, cluster) in [("onprem", "private-a"), ("aws", "public-c")] {
        let label = json!({"clusterLabel": "reachability=nodePort"});
        system.client.post(&format!("/v2/cluster-providers/{provider}/clusters/{cluster}/labels"), Some(&label)).await.unwrap();
    }
    let closed = Group::new("closed", answering("closed")).on(&ON).among(&ON);
    let operation = deploy(&system, &closed, free_port()).await;
    assert!(serde_json::to_string(&operation).unwrap().contains("by ports of nodes"), "{operation:#?}");

    let (port, open) = (free_port(), Group::new("open", answering("open").on_node_ports()).on(&ON).movable(5).among(&ON));
    succeeded(&deploy(&system, &open, port).await);
    moves(&system, "open", port, 30.0, 1).await;
    let routes = system.client.get::<RouteList>("/v2/routes?project=e2e").await.unwrap().items;
    let route = routes.iter().find(|route| route.composite_app == "open").unwrap();
    assert_eq!(
        (route.state.as_str(), route.backends.len(), route.backends[0].answering),
        ("serving", 1, 1),
        "the port of the one node of the cluster answers: {routes:#?}"
    );
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes minutes; part of make test-long"]
async fn no_request_fails_through_ten_moves_between_real_kubelets() {
    if !Backend::kubelets_run_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let system = System::on_kubelets_with(vec![image(folder.path())], &[]).await;
    let (port, group) = (free_port(), Group::new("web", answering("web")).on(&ON).movable(5).among(&ON));
    succeeded(&deploy(&system, &group, port).await);
    moves(&system, "web", port, 200.0, 10).await;
    system.end().await;
}
