//! How much memory clusters take. Each test runs in a process of its own, whose memory it measures: what an earlier test has freed stays
//! with its process, and would be counted, or used again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::Command;
use std::sync::{Mutex, PoisonError};
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

/// Held by each test, so that only one of them fills the machine's memory.
static ALONE: Mutex<()> = Mutex::new(());
/// Set in the process of a single test.
const WITHIN: &str = "DROVER_TEST_WITHIN";

/// Runs the measurement if this is the process of this test alone; otherwise starts that process.
fn alone(test: &str, measure: impl Future<Output = ()>) {
    if std::env::var_os(WITHIN).is_some() {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(measure);
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut program = Command::new(std::env::current_exe().unwrap());
    let status = program.args([test, "--exact", "--include-ignored", "--nocapture"]).env(WITHIN, "1").status().unwrap();
    assert!(status.success(), "{test} says above what it found");
}

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

#[test]
fn fifty_clusters_of_300_pods_take_less_than_50_mib() {
    alone("fifty_clusters_of_300_pods_take_less_than_50_mib", full(50, 50));
}

#[test]
#[ignore = "long: 300,000 pods"]
fn thousand_clusters_of_300_pods_take_less_than_1_gib() {
    alone("thousand_clusters_of_300_pods_take_less_than_1_gib", full(1_000, 1_024));
}

#[test]
fn thousand_clusters_take_less_than_150_mib_and_serve_a_watch_each() {
    alone("thousand_clusters_take_less_than_150_mib_and_serve_a_watch_each", small());
}

/// A thousand clusters without pods take less than 150 MiB, and each tells a watcher of a write.
async fn small() {
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
