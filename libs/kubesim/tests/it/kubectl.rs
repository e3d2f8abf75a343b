//! An unmodified kubectl, as deploy/local-kube builds it, works with a simulated cluster.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use drover_kubesim::{ClusterSpec, Sim};
use drover_testkit::eventually;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;

const WEB: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {kit/start-delay: 0s}}
    spec: {containers: [{name: c, image: i}]}
";

struct Kubectl {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Kubectl {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let cache = self.folder.path().join("cache");
        command.args(args).env_clear().env("KUBECONFIG", self.folder.path().join("kubeconfig")).env("KUBECACHEDIR", cache);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn says(&self, args: &[&str]) -> String {
        let output = tokio::time::timeout(Duration::from_secs(60), self.command(args).output()).await.unwrap().unwrap();
        assert!(output.status.success(), "kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unmodified_kubectl_works() {
    let Some(programs) = drover_testkit::needs("DROVER_KUBE_BIN") else { return };
    let sim = Sim::new();
    sim.add_cluster("a", ClusterSpec { anonymous: true, pods: 3, ..ClusterSpec::with_nodes(2, "4", "16Gi") });
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let _server = sim.serve(listener);
    let kubectl = Kubectl { program: Path::new(&programs).join("kubectl"), folder: tempfile::tempdir().unwrap() };
    std::fs::write(kubectl.folder.path().join("kubeconfig"), sim.kubeconfig("a", &url)).unwrap();
    let file = kubectl.folder.path().join("web.yaml");
    std::fs::write(&file, WEB).unwrap();
    let file = file.to_str().unwrap();

    // A watch that is open before anything happens sees it all.
    let mut watch = kubectl.command(&["get", "pods", "-l", "app=web", "-w", "--output-watch-events"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut seen = BufReader::new(watch.stdout.take().unwrap()).lines();

    assert_eq!(kubectl.says(&["get", "nodes", "-o", "name"]).await, "node/node-1\nnode/node-2\n");
    assert_eq!(kubectl.says(&["apply", "--server-side", "-f", file]).await, "deployment.apps/web serverside-applied\n");
    kubectl.says(&["rollout", "status", "deployment/web", "--timeout=30s"]).await;
    assert_eq!(kubectl.says(&["get", "pods", "-l", "app=web", "-o", "name"]).await.lines().count(), 2);
    assert_eq!(kubectl.says(&["get", "pods", "-l", "app!=web", "-o", "name"]).await.lines().count(), 3, "those it began with");
    // The same again changes nothing; another manager is told whose field it is.
    kubectl.says(&["apply", "--server-side", "-f", file]).await;
    let conflict = kubectl
        .command(&["apply", "--server-side", "--field-manager=other", "-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut conflict = conflict.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut conflict.stdin.take().unwrap(), WEB.replace("replicas: 2", "replicas: 3").as_bytes())
        .await
        .unwrap();
    let refused = conflict.wait_with_output().await.unwrap();
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("conflict"), "{refused:?}");

    kubectl.says(&["delete", "deployment", "web"]).await;
    eventually(Duration::from_secs(30), async || {
        kubectl.says(&["get", "pods", "-l", "app=web", "-o", "name"]).await.is_empty().then_some(())
    })
    .await;
    let (mut added, mut deleted) = (0, 0);
    while deleted < 2 {
        let line = tokio::time::timeout(Duration::from_secs(30), seen.next_line()).await.unwrap().unwrap().unwrap();
        added += usize::from(line.starts_with("ADDED"));
        deleted += usize::from(line.starts_with("DELETED"));
    }
    assert_eq!(added, 2);
}
