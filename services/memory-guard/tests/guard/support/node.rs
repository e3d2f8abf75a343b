//! A cluster of one real node with a real kubelet, whose pods share little memory. It is removed with the test, however that ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use drover_lab_node::{Version, image, thaw_below};
use drover_memory_guard::cgroup::{Group, Hierarchy};
use serde_json::Value;

use super::say;

/// Time-out for a cluster, its pods and their back-offs, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(600);
/// The kubelet sees this many MiB more than the pods of the test may use, because it evicts when less than 100 MiB are free and the guard
/// is what is tested.
const ROOM: u64 = 800;
const NAME: &str = "mg";

/// Whether the machine lacks something that a real node needs.
pub fn missing(test: &str) -> bool {
    if super::missing(test) {
        return true;
    }
    if !Path::new("/sys/fs/cgroup/memory").exists() {
        say(&format!("SKIPPED, proves nothing: {test} lacks cgroup v1 (deploy/local-kube's real nodes need it), which nothing installs"));
        return true;
    }
    if std::env::var_os("DROVER_KUBE_BIN").is_some() {
        return false;
    }
    let skipped = format!("SKIPPED, proves nothing: {test} lacks DROVER_KUBE_BIN");
    assert!(std::env::var_os("DROVER_NO_SKIPS").is_none(), "{skipped}");
    say(&skipped);
    true
}

fn local_kube() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube").canonicalize().unwrap()
}

pub struct Node {
    dir: tempfile::TempDir,
}

impl Node {
    /// Starts a node with the workload's image. Its Burstable pods have `memory` MiB together.
    pub async fn up(memory: u64, version: &Version) -> Self {
        let node = Self { dir: tempfile::Builder::new().prefix("mgn").tempdir().unwrap() };
        let image = image(node.dir.path()).unwrap();
        let mut up = Command::new(local_kube().join("kube.sh"));
        let (owner, sees) = (std::process::id().to_string(), format!("{}Mi", memory + ROOM));
        up.args(["up", "--real", "--names", NAME, "--nodes", "1", "--owner", &owner, "--memory", &sees, "--dir"]).arg(node.set());
        // Other tests have real nodes too, and there are only nine addresses.
        up.env("EXTRA_IMAGES", image).env("PROXY", "none").env("ADDRESS_WAIT", PATIENCE.as_secs().to_string());
        if let Version::Two(bin) = version {
            up.env("NODE_CONTAINERD", bin);
        }
        let output = up.output().unwrap();
        assert!(output.status.success(), "the cluster does not come up: {}", String::from_utf8_lossy(&output.stderr));
        let group = |controller: &str| Path::new("/sys/fs/cgroup").join(controller).join(&node.pods_group()[1..]);
        std::fs::write(group("memory").join("memory.limit_in_bytes"), (memory << 20).to_string()).unwrap();
        // The kernel shares CPU time between cgroups, so without more shares all pods together would get as little as one busy process.
        std::fs::write(group("cpu").ancestors().nth(2).unwrap().join("cpu.shares"), "10240").unwrap();
        // Without its service account the namespace admits no pod.
        let account = |accounts: Vec<Value>| accounts.iter().any(|account| account["metadata"]["name"] == "default").then_some(());
        node.eventually("the namespace has its service account", || account(node.list("serviceaccounts"))).await;
        node
    }

    fn set(&self) -> PathBuf {
        self.dir.path().join("set")
    }

    /// The kubeconfig of the cluster's admin.
    pub fn kubeconfig(&self) -> PathBuf {
        self.set().join(NAME).join("kubeconfig")
    }

    /// The node's name.
    pub fn name(&self) -> String {
        format!("{NAME}-1")
    }

    /// A directory for the files of the test.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The socket of its containerd, as seen from this machine.
    pub fn socket(&self) -> PathBuf {
        self.set().join(NAME).join("nodes/1/fs/run/containerd/containerd.sock")
    }

    /// The cgroup of its Burstable pods.
    pub fn pods_group(&self) -> String {
        let kubelet = std::fs::read_to_string(self.set().join(NAME).join("nodes/1/etc/kubelet.yaml")).unwrap();
        let root = kubelet.lines().find_map(|line| line.strip_prefix("cgroupRoot: ")).unwrap().trim();
        format!("{root}/kubepods/burstable")
    }

    /// Runs kubectl and returns what it prints.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let kubectl = PathBuf::from(std::env::var_os("DROVER_KUBE_BIN").unwrap()).join("kubectl");
        let output = Command::new(kubectl).arg("--kubeconfig").arg(self.kubeconfig()).args(arguments).output().unwrap();
        assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The objects of that kind in the namespace `default`.
    pub fn list(&self, kind: &str) -> Vec<Value> {
        let mut list: Value = serde_json::from_str(&self.kubectl(&["get", kind, "-o", "json"])).unwrap();
        list["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Creates objects.
    pub fn make(&self, objects: &[Value]) {
        let file = self.dir.path().join("objects.json");
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(&file, list.to_string()).unwrap();
        self.kubectl(&["create", "-f", file.to_str().unwrap()]);
    }

    /// Waits until `look` returns something.
    pub async fn eventually<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            if began.elapsed() > PATIENCE {
                let pods = self.kubectl(&["get", "pods,jobs", "-o", "wide"]);
                panic!("timed out waiting until {what}:\n{pods}\n{}", self.kubectl(&["get", "events"]));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// The cgroup of the only container of a pod.
    pub fn group(&self, pod: &Value) -> Group {
        let hierarchy = Hierarchy::detect(Path::new("/sys/fs/cgroup")).unwrap();
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap().trim_start_matches("containerd://");
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        hierarchy.group_at(&format!("{}/pod{uid}/{id}", self.pods_group()))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A test that failed may leave frozen processes, which cannot be killed.
        if self.kubeconfig().exists() {
            thaw_below(&self.pods_group());
        }
        let _ = Command::new(local_kube().join("kube.sh")).args(["down", "--dir"]).arg(self.set()).stderr(Stdio::null()).status();
    }
}
