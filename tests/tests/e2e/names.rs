//! Callers inside the clusters find an app by the name of its Service wherever it moves, and nothing is left of the names in the end.

use std::time::Duration;

use drover_e2e::apps::App;
use drover_e2e::definitions::define;
use drover_e2e::emco::{Group, ended};
use drover_e2e::members::Member;
use drover_e2e::{System, scenario, succeeded};
use drover_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use super::drains;

const PATIENCE: Duration = Duration::from_secs(120);

async fn cluster_ip(member: &Member) -> Option<String> {
    let services: Api<Service> = Api::namespaced(member.client.clone(), "default");
    services.get_opt("cart").await.unwrap()?.spec?.cluster_ip
}

/// The addresses of ready endpoints to which the name leads in a member.
async fn leads_to(member: &Member) -> Vec<String> {
    let slices: Api<EndpointSlice> = Api::namespaced(member.client.clone(), "default");
    let slices = slices.list(&ListParams::default().labels("kubernetes.io/service-name=cart")).await.unwrap();
    let endpoints = slices.items.into_iter().flat_map(|slice| slice.endpoints);
    let ready = endpoints.filter(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false));
    let mut found: Vec<String> = ready.flat_map(|endpoint| endpoint.addresses).collect();
    found.sort();
    found
}

/// The import of the name in a member: its address, the clusters from which it comes, and the addresses of pods to which it leads.
async fn imported(member: &Member) -> Option<(Option<String>, Vec<String>, Vec<String>)> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("multicluster.x-k8s.io", "v1alpha1", "ServiceImport"));
    let imports: Api<DynamicObject> = Api::namespaced_with(member.client.clone(), "default", &resource);
    let import = imports.get_opt("cart").await.unwrap()?.data;
    let slices: Api<EndpointSlice> = Api::namespaced(member.client.clone(), "default");
    let slices = slices.list(&ListParams::default().labels("multicluster.kubernetes.io/service-name=cart")).await.unwrap();
    let mut found: Vec<String> =
        slices.items.into_iter().flat_map(|slice| slice.endpoints).flat_map(|endpoint| endpoint.addresses).collect();
    found.sort();
    let clusters = import["status"]["clusters"].as_array().into_iter().flatten();
    let clusters = clusters.filter_map(|cluster| Some(cluster["cluster"].as_str()?.to_owned())).collect();
    Some((import["spec"]["ips"][0].as_str().map(str::to_owned), clusters, found))
}

/// The addresses of the app's pods in a member.
async fn pods(member: &Member) -> Vec<String> {
    let pods = member.pods().list(&ListParams::default().labels("app=cart")).await.unwrap();
    let mut found: Vec<String> = pods.items.into_iter().filter_map(|pod| pod.status?.pod_ip).collect();
    found.sort();
    found
}

/// Waits until the name, and the import of it, lead to the pods in `home` from all of these members.
async fn answers(system: &System, from: &[&str], home: &str) {
    for name in from {
        let member = system.member(name);
        let source = format!("{}-{home}", system.member(home).provider);
        let as_wanted = async || {
            let wanted = pods(system.member(home)).await;
            let import = (cluster_ip(member).await, vec![source.clone()], wanted.clone());
            (wanted.len() == 2 && leads_to(member).await == wanted && imported(member).await? == import).then_some(())
        };
        if tokio::time::timeout(PATIENCE, eventually(PATIENCE * 2, as_wanted)).await.is_err() {
            let (found, import, wanted) = (leads_to(member).await, imported(member).await, pods(system.member(home)).await);
            panic!("in {name} the name leads to {found:?}, its import is {import:?}; pods in {home}: {wanted:?}");
        }
    }
}

/// Empties a cluster and opens it again.
async fn drain(system: &System, provider: &str, cluster: &str) {
    let plan = drains::plan(system, provider, cluster).await;
    assert_eq!(plan["plan"]["dependants"], json!([]), "nobody loses the name: {plan:#}");
    let id = drains::begin(system, &plan).await;
    succeeded(&drains::end(system, &id, provider, cluster).await);
}

async fn name_of_a_moved_app_answers_its_callers(system: &System) {
    let client = &system.client;
    for member in system.members() {
        let labels = format!("/v2/cluster-providers/{}/clusters/{}/labels", member.provider, member.name);
        client.post(&labels, Some(&json!({"clusterLabel": "pod-network=flat"}))).await.unwrap();
        let kinds = ["ServiceExport", "ServiceImport"].map(|kind| ["multicluster.x-k8s.io", "v1alpha1", kind]);
        define(member, system.backend, "mcs-api", &kinds).await;
    }
    let caller = Group::new("web", App::new("web", 100)).on(&["onprem/private-b"]).pinned();
    // No document says who calls it: the name has to answer everywhere.
    let cart = App::new("cart", 200).replicas(2).serving(8080).exported();
    let called = Group::new("cart", cart).on(&["onprem/private-a", "aws/public-c"]).movable(5);
    for group in [&caller, &called] {
        succeeded(&group.deploy(client).await.unwrap());
    }
    answers(system, &["private-a", "private-b"], "private-a").await;
    let before = cluster_ip(system.member("private-a")).await.unwrap();

    drain(system, "onprem", "private-a").await;
    answers(system, &["private-a", "private-b", "public-c"], "public-c").await;
    assert_eq!(cluster_ip(system.member("private-a")).await.unwrap(), before, "it is the same Service");
    assert!(pods(system.member("private-a")).await.is_empty());

    drain(system, "aws", "public-c").await;
    answers(system, &["private-a", "private-b", "public-c"], "private-a").await;
    assert_eq!(cluster_ip(system.member("private-a")).await.unwrap(), before);

    for group in [&called, &caller] {
        let id = group.verb(client, "terminate").await.unwrap();
        succeeded(&ended(client, &id).await.unwrap());
    }
    for member in system.members() {
        let nothing = async || {
            (cluster_ip(member).await.is_none() && leads_to(member).await.is_empty() && imported(member).await.is_none()).then_some(())
        };
        eventually(PATIENCE, nothing).await;
    }
}
scenario!(name_of_a_moved_app_answers_its_callers);
