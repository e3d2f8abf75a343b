//! Where the data path is told to find the pods of a copy, by the label of its member, on kubesim.

use std::sync::atomic::Ordering;

use drover_api::bindings::Phase;
use drover_scheduling::MemberState;
use drover_testkit::eventually;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{MEMBER, PATIENCE, Stack, binding, deployment, service};

/// The addresses in the feed of endpoints, sorted.
async fn addresses(stack: &Stack) -> Vec<String> {
    let (_, page) = stack.send(reqwest::Method::GET, "/internal/feeds/endpoints", &()).await;
    let items = page["items"].as_array().unwrap().iter().flat_map(|item| item["value"]["ports"].as_array().into_iter().flatten());
    let mut found: Vec<String> =
        items.flat_map(|port| port["addresses"].as_array().unwrap()).map(|address| address.as_str().unwrap().to_owned()).collect();
    found.sort();
    found
}

async fn give_nodes_addresses(stack: &Stack) {
    let nodes: Api<Node> = Api::all(stack.client());
    for (number, node) in nodes.list(&Default::default()).await.unwrap().into_iter().enumerate() {
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": format!("192.0.2.{}", number + 1)}]}});
        nodes.patch_status(&node.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
}

async fn reached_at(stack: &Stack, wanted: impl Fn(&[String]) -> bool) {
    if tokio::time::timeout(PATIENCE, eventually(PATIENCE * 2, async || wanted(&addresses(stack).await).then_some(()))).await.is_err() {
        panic!("the pods are reached at {:?}", addresses(stack).await);
    }
}

fn labelled(stack: &Stack, labels: &[&str]) {
    *stack.labels.lock().unwrap() = labels.iter().map(|label| (*label).to_owned()).collect();
    stack.tell(MEMBER, MemberState::Ready);
}

#[tokio::test]
async fn pods_are_reached_in_the_way_that_the_label_of_their_member_names() {
    let stack = Stack::start().await;
    give_nodes_addresses(&stack).await;
    let mut open = service("web");
    open["spec"]["type"] = json!("LoadBalancer");
    open["spec"]["ports"] = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    stack.bundle("web", vec![deployment("web", 2, "100m"), open]).await;
    let desired = binding("web", "web");
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;
    let is_pod = |address: &String| address.ends_with(":8080");
    reached_at(&stack, |found| found.len() == 2 && found.iter().all(is_pod)).await;

    labelled(&stack, &["reachability=nodePort"]);
    let is_node = |address: &String| address.starts_with("192.0.2.") && address.ends_with(":30080");
    reached_at(&stack, |found| !found.is_empty() && found.iter().all(is_node)).await;

    labelled(&stack, &["reachability=loadBalancer"]);
    reached_at(&stack, <[String]>::is_empty).await;
    let balancer = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}}});
    stack.api::<Service>().patch_status("web", &PatchParams::default(), &Patch::Merge(&balancer)).await.unwrap();
    reached_at(&stack, |found| found == ["198.51.100.1:80"]).await;

    labelled(&stack, &["reachability=none"]);
    reached_at(&stack, <[String]>::is_empty).await;
    labelled(&stack, &[]);
    reached_at(&stack, |found| found.len() == 2 && found.iter().all(is_pod)).await;
    // A link carries no traffic of users, so a linked member needs a label.
    stack.linked.store(true, Ordering::Relaxed);
    labelled(&stack, &[]);
    reached_at(&stack, <[String]>::is_empty).await;
    labelled(&stack, &["reachability=podNetwork"]);
    reached_at(&stack, |found| found.len() == 2 && found.iter().all(is_pod)).await;
}

#[tokio::test]
async fn copy_without_ready_pods_is_not_reached_at_its_nodes() {
    let stack = Stack::start().await;
    give_nodes_addresses(&stack).await;
    labelled(&stack, &["reachability=nodePort"]);
    let mut open = service("web");
    open["spec"]["type"] = json!("NodePort");
    open["spec"]["ports"] = json!([{"port": 80, "nodePort": 30080}]);
    let mut web = deployment("web", 1, "100m");
    web["spec"]["template"]["metadata"]["annotations"] = json!({"kit/never-ready": "true"});
    stack.bundle("web", vec![web, open]).await;
    let desired = binding("web", "web");
    stack.desire(&desired).await;
    let slices: Api<k8s_openapi::api::discovery::v1::EndpointSlice> = stack.api();
    eventually(PATIENCE, async || (slices.list(&Default::default()).await.unwrap().items.len() == 1).then_some(())).await;
    // The copy is in the feed by its slice, without an address.
    let listed = async || {
        let (_, page) = stack.send(reqwest::Method::GET, "/internal/feeds/endpoints", &()).await;
        page["items"].as_array().filter(|items| items.iter().any(|item| item["value"]["ports"] != Value::Null)).map(|_| ())
    };
    eventually(PATIENCE, listed).await;
    assert!(addresses(&stack).await.is_empty());
}
