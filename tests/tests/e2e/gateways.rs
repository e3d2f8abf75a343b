//! Users' requests come by a gateway of one of the clusters: its weights follow an app that moves, and go back when the move is undone.

use std::time::Duration;

use drover_api::operations::OperationState;
use drover_api::traffic::{RouteList, RouteView};
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, free_port};
use drover_e2e::{System, failed, gateways, scenario, succeeded};
use drover_testkit::eventually;
use serde_json::{Value, json};

use super::drains;

const PATIENCE: Duration = Duration::from_secs(120);
/// The cluster with the gateway.
const AT: &str = "private-a";

async fn backends(system: &System, names: &[&str]) {
    gateways::set_backends(system.member(AT), names).await;
}

async fn weights(system: &System) -> Vec<u64> {
    gateways::weights(system.member(AT)).await
}

async fn weigh(system: &System, wanted: &[u64]) {
    gateways::weigh(system.member(AT), wanted).await;
}

async fn route(system: &System) -> RouteView {
    system.client.get::<RouteList>("/v2/routes?project=e2e").await.unwrap().items.remove(0)
}

/// Begins to empty a cluster, and returns the operation.
async fn drain(system: &System, provider: &str, cluster: &str) -> String {
    drains::begin(system, &drains::plan(system, provider, cluster).await).await
}

async fn weights_of_a_gateway_follow_an_app_that_moves(system: &System) {
    gateways::define(system.member(AT), system.backend).await;
    backends(system, &["web"]).await;
    let group = Group::new("shop", App::new("web", 300).replicas(2).serving(8080)).on(&["onprem/private-a", "aws/public-c"]).movable(5);
    let gateway = json!({"cluster": format!("onprem+{AT}"), "namespace": "default", "httpRoute": "shop"});
    let shift = json!({"steps": [20], "pauseSeconds": 3, "drainSeconds": 1});
    let port = free_port();
    let spec = |shift: &Value| json!({"app": "web", "service": "web", "servicePort": 80, "host": "shop.example", "port": port, "gateway": gateway, "shift": shift});
    succeeded(&group.deploy_with_route(&system.client, spec(&shift)).await.unwrap());
    weigh(system, &[100]).await;
    eventually(PATIENCE, async || (route(system).await.state == "serving").then_some(())).await;

    let routes = format!("{}/routes", group.path());
    let mut elsewhere = spec(&shift);
    elsewhere["gateway"]["cluster"] = json!("aws+unknown");
    let error = system.client.upsert(&routes, "other", &json!({"metadata": {"name": "other"}, "spec": elsewhere})).await.unwrap_err();
    assert_eq!(drover::hub::code(&error), Some("invalid"), "{error:#}");

    // No backend leads to the other cluster, so the app stays.
    let refused = drains::end(system, &drain(system, "onprem", AT).await, "onprem", AT).await;
    failed(&refused, "traffic_not_answered");
    let words = "has no backend web-aws-public-c";
    assert!(refused.reasons.iter().any(|reason| reason.contains(words)), "{refused:#?}");
    assert_eq!((weights(system).await, system.home("web").await), (vec![100], AT.to_owned()));

    backends(system, &["web", "web-aws-public-c"]).await;
    weigh(system, &[100, 0]).await;
    let recorded = gateways::record(system.member(AT)).await;
    let id = drain(system, "onprem", AT).await;
    recorded.had(&[80, 20]).await;
    succeeded(&drains::end(system, &id, "onprem", AT).await);
    assert_eq!((weights(system).await, system.home("web").await), (vec![0, 100], "public-c".to_owned()));

    // The way back is given up half-way: the traffic returns to where the app was.
    let long = json!({"steps": [20], "pauseSeconds": 600, "drainSeconds": 1});
    let document = json!({"metadata": {"name": "shop"}, "spec": spec(&long)});
    system.client.upsert(&routes, "shop", &document).await.unwrap();
    let id = drain(system, "aws", "public-c").await;
    weigh(system, &[20, 80]).await;
    system.client.post(&format!("/v2/operations/{id}/cancel"), None).await.unwrap();
    let given_up = drains::end(system, &id, "aws", "public-c").await;
    assert_ne!(given_up.state, OperationState::Succeeded, "{given_up:#?}");
    weigh(system, &[0, 100]).await;
    assert_eq!(system.home("web").await, "public-c");

    let document = json!({"metadata": {"name": "shop"}, "spec": spec(&shift)});
    system.client.upsert(&routes, "shop", &document).await.unwrap();
    let id = drain(system, "aws", "public-c").await;
    succeeded(&drains::end(system, &id, "aws", "public-c").await);
    assert_eq!((weights(system).await, system.home("web").await), (vec![100, 0], AT.to_owned()));
}
scenario!(weights_of_a_gateway_follow_an_app_that_moves, &[drover_e2e::SOON_READY]);
