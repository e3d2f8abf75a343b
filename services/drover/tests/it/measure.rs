//! `drover autoscale measure` against a simulated cluster and an app whose capacity is known.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use drover_kubesim::{ClusterSpec, Sim};
use drover_testkit::eventually;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longer than a few measurements take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Requests per second that a pod of the app serves.
const PER_POD: i64 = 40;

/// Answers at most [`PER_POD`] requests per second and pod in time; others wait for too long.
async fn app(pods: Arc<AtomicI64>) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (began, busy_until) = (Instant::now(), Arc::new(AtomicI64::new(0)));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream, pods.clone(), began, busy_until.clone()));
        }
    });
    address
}

/// A queue with one server that is as fast as all pods together.
async fn answer(mut stream: TcpStream, pods: Arc<AtomicI64>, began: Instant, busy_until: Arc<AtomicI64>) {
    let mut seen = [0; 4096];
    while stream.read(&mut seen).await.is_ok_and(|read| read > 0) {
        let now = i64::try_from(began.elapsed().as_micros()).unwrap();
        let takes = 1_000_000 / (PER_POD * pods.load(Ordering::Relaxed).max(1));
        let before = busy_until.fetch_max(now, Ordering::Relaxed).max(now);
        busy_until.fetch_add(takes, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_micros(u64::try_from(before - now + takes).unwrap())).await;
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capacity_and_start_of_a_deployment_are_measured_and_it_has_as_many_pods_as_before() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (sim, url) = (Sim::new(), format!("http://{}", listener.local_addr().unwrap()));
    sim.add_cluster("one", ClusterSpec::with_nodes(1, "4", "16Gi"));
    let _server = sim.serve(listener);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kubeconfig"), sim.kubeconfig("one", &url)).unwrap();
    let deployments: Api<Deployment> = Api::default_namespaced(sim.client("one"));
    let container = json!({"name": "app", "image": "example.com/web:1", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}, "annotations": {"kit/start-delay": "2s", "kit/start-delay-max": "2s"}}, "spec": {"containers": [container]}}}});
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();

    let pods = Arc::new(AtomicI64::new(0));
    let address = app(pods.clone()).await;
    let (of, counted) = (deployments.clone(), pods.clone());
    tokio::spawn(async move {
        loop {
            let ready = of.get("web").await.ok().and_then(|web| web.status?.ready_replicas).unwrap_or(0);
            counted.store(i64::from(ready), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let measure = async || {
        let mut measure = tokio::process::Command::new(env!("CARGO_BIN_EXE_drover"));
        measure.args(["autoscale", "measure", "web", "--kubeconfig", "kubeconfig", "--url", &format!("http://{address}/"), "-o", "json"]);
        measure.args(["--pods", "1,3", "--during", "1", "--start", "30", "--highest", "200", "--timeout", "0.2", "--out", "measured"]);
        let output = measure.current_dir(folder.path()).stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        // A busy machine may answer no rate at all in 0.2 s, or no higher one with more pods.
        let busy = ["do not answer", "the points do not grow"].iter().any(|words| error.contains(words));
        assert!(output.status.success() || busy, "{error}");
        output.status.success().then_some(output)
    };
    let output = eventually(PATIENCE, measure).await;

    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    // On a busy machine a rate that can be served may be missed, so only more than the capacity is wrong; a queue of 0.2 s lets a little
    // more through.
    for point in measured["points"].as_array().unwrap() {
        let (pods, rate) = (point[0].as_f64().unwrap(), point[1].as_f64().unwrap());
        assert!(rate > 0.0 && rate < 1.4 * pods * PER_POD as f64, "{measured:#}");
    }
    assert!(measured["capacity"]["perPod"].as_f64().unwrap() >= 0.0, "{measured:#}");
    assert!(measured["delay"].as_f64().unwrap() >= 2.0, "{measured:#}");
    let csv = std::fs::read_to_string(folder.path().join("measured/capacity.csv")).unwrap();
    assert_eq!(csv.lines().map(|line| line.split(',').next().unwrap()).collect::<Vec<_>>(), ["pods", "1", "3"]);
    assert!(measured["options"].as_str().unwrap().starts_with("--capacity measured/capacity.csv --delay "), "{measured:#}");
    assert_eq!(deployments.get("web").await.unwrap().spec.unwrap().replicas, Some(4), "it has as many pods as before");
}
