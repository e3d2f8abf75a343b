//! While the metrics server is down nothing is scaled, whatever the load does; when it is back, the load is followed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use drover_autoscaler::status::ConditionType;
use drover_testkit::{eventually, needs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::follow::at_once;
use crate::support::{Agent, PATIENCE, TestNamespace};

/// A control plane of the test's own, whose parts may be killed.
struct Plane(tempfile::TempDir);

impl Plane {
    /// Starts all parts, including those that were killed.
    async fn up(&self) -> PathBuf {
        let mut up = tokio::process::Command::new(script());
        up.args(["up", "--names", "down", "--nodes", "1", "--metrics", "--owner", &std::process::id().to_string(), "--dir"])
            .arg(self.0.path());
        let output = tokio::time::timeout(PATIENCE, up.kill_on_drop(true).output()).await.expect("kube.sh takes too long").unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.0.path().join("down/kubeconfig")
    }

    fn kill(&self, part: &str) {
        let file = std::fs::read_to_string(self.0.path().join("down/pid").join(part)).unwrap();
        let pid = file.split_whitespace().next().unwrap().parse().unwrap();
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _ = Command::new(script()).args(["down", "--dir"]).arg(self.0.path()).stderr(Stdio::null()).status();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube/kube.sh")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_server_down_scales_nothing() {
    if needs("DROVER_KUBE_BIN").is_none() {
        return;
    }
    let plane = Plane(tempfile::Builder::new().prefix("down").tempdir().unwrap());
    let place = TestNamespace::at(plane.up().await, "down".to_owned()).await;
    place.workload("web", 1).await;
    let cpu = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]);
    place.policy("web", "threshold", "apply", json!({"behavior": at_once(), "threshold": {"metrics": cpu}, "periodSeconds": 1})).await;
    let agent = Agent::start(&place, "agent", &place.kubeconfig, &[]).await;
    let (load, driver) = place.load("web");
    load.send_replace(100);
    place.reaches("web", |replicas| replicas == 2).await;
    place.condition("web", ConditionType::MetricsRead, "True", "Read").await;

    plane.kill("metrics-server");
    let why = place.condition("web", ConditionType::MetricsRead, "False", "Missing").await;
    assert!(why.contains("metrics.k8s.io"), "{why}");
    let stands = place.replicas("web").await;
    for milli in [5, 400] {
        load.send_replace(milli);
        // These decisions are made without metrics.
        let mut decisions = BTreeSet::new();
        eventually(PATIENCE, async || {
            assert_eq!(place.replicas("web").await, stands, "scaled without metrics");
            decisions.extend(agent.decided(&place, "web").await);
            (decisions.len() > 5).then_some(())
        })
        .await;
        assert_eq!(place.status("web").await.desired_replicas, None);
    }

    plane.up().await;
    place.reaches("web", |replicas| replicas == 4).await;
    place.condition("web", ConditionType::MetricsRead, "True", "Read").await;
    driver.abort();
}
