//! How much memory clusters take. A program of its own, because it measures the memory of its process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use drover_kubesim::{ClusterSpec, Sim};
use drover_testkit::eventually;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Held by each test, as each measures the process.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Only against hanging: never a judgement of speed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until the controllers have done in every cluster what they do for a new one: each namespace has its service account.
async fn settled(sim: &Sim, clusters: &[String]) {
    const NAMESPACES: usize = 4;
    for name in clusters {
        let accounts: Api<ServiceAccount> = Api::all(sim.client(name));
        eventually(PATIENCE, async || {
            let made = accounts.list(&ListParams::default()).await.unwrap().items.len();
            (made == NAMESPACES).then_some(())
        })
        .await;
    }
}

/// That many clusters of 20 nodes and 300 pods take less than `most` MiB, and answer.
async fn full(clusters: usize, most: u64) {
    let (sim, start) = (Sim::new(), Instant::now());
    let before = resident_mib();
    let names: Vec<String> = (0..clusters).map(|at| format!("full{at:04}")).collect();
    for name in &names {
        sim.add_cluster(name, ClusterSpec { pods: 300, journal: false, ..ClusterSpec::with_nodes(20, "8", "32Gi") });
    }
    settled(&sim, &names).await;
    for name in [&names[0], &names[clusters - 1]] {
        let pods: Api<Pod> = Api::default_namespaced(sim.client(name));
        let pods = pods.list(&ListParams::default().fields("spec.nodeName=node-7")).await.unwrap().items;
        assert_eq!(pods.len(), 15);
        assert!(pods.iter().all(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")));
    }
    let taken = resident_mib().saturating_sub(before);
    println!("{clusters} clusters of 20 nodes and 300 pods after {:.1?}: {taken} MiB", start.elapsed());
    assert!(taken < most, "{taken} MiB");
}

#[tokio::test]
async fn fifty_clusters_of_300_pods_take_less_than_50_mib() {
    let _alone = ALONE.lock().await;
    full(50, 50).await;
}

#[tokio::test]
#[ignore = "long: 300,000 pods"]
async fn thousand_clusters_of_300_pods_take_less_than_1_gib() {
    let _alone = ALONE.lock().await;
    full(1_000, 1_024).await;
}

#[tokio::test]
async fn thousand_clusters_take_less_than_150_mib_and_serve_a_watch_each() {
    let _alone = ALONE.lock().await;
    let (sim, start) = (Sim::new(), Instant::now());
    let names: Vec<String> = (0..1000).map(|at| format!("c{at:04}")).collect();
    for name in &names {
        sim.add_cluster(name, ClusterSpec::with_nodes(5, "8", "32Gi"));
    }
    settled(&sim, &names).await;
    let idle = resident_mib();
    println!("1,000 clusters of 5 nodes after {:.1?}: {idle} MiB", start.elapsed());
    assert!(idle < 150, "{idle} MiB");

    let start = Instant::now();
    let watches = names.iter().map(|name| {
        let api: Api<ConfigMap> = Api::default_namespaced(sim.client(name));
        async move {
            let mut seen = watcher(api.clone(), watcher::Config::default()).applied_objects().boxed();
            let object: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "hello"}})).unwrap();
            api.create(&PostParams::default(), &object).await.unwrap();
            while seen.next().await.unwrap().unwrap().metadata.name.as_deref() != Some("hello") {}
        }
    });
    tokio::time::timeout(PATIENCE, futures::future::join_all(watches)).await.expect("all see their object");
    println!("1,000 watchers saw a write each after {:.1?}: {} MiB", start.elapsed(), resident_mib());
}
