//! Clusters with one real node each, which have the autoscaler's image; they are removed when the test ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use drover_testkit::Image;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tokio::process::Command;

use super::PATIENCE;

pub const IMAGE: &str = "drover.local/autoscaler:1";
const AGENT: &str = env!("CARGO_BIN_EXE_drover-autoscaler");

/// Prints past the capture of test output.
pub fn say(words: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{words}");
}

/// Whether the machine lacks something that a real kubelet needs. For root `make test` installs everything, so that nothing may be missing.
pub fn missing() -> bool {
    let root = nix::unistd::geteuid().is_root();
    let dirs = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"];
    let there = |program: &&str| dirs.iter().any(|dir| Path::new(dir).join(*program).exists());
    if !Path::new("/sys/fs/cgroup/memory").exists() {
        say(
            "SKIPPED, proves nothing: scaling real pods from zero lacks cgroup v1 (deploy/local-kube's real nodes need it), which nothing installs",
        );
        return true;
    }
    let mut lacks: Vec<&str> = ["containerd", "runc", "ctr", "nft", "python3", "strip"].into_iter().filter(|one| !there(one)).collect();
    if !root {
        lacks.push("root");
    }
    if std::env::var_os("DROVER_KUBE_BIN").is_none() {
        lacks.push("DROVER_KUBE_BIN");
    }
    if lacks.is_empty() {
        return false;
    }
    let skipped =
        format!("SKIPPED, proves nothing: scaling real pods from zero lacks {} (as root: deploy/setup.sh real)", lacks.join(", "));
    assert!(!(root && std::env::var_os("DROVER_NO_SKIPS").is_some()), "{skipped}");
    say(&skipped);
    true
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A cluster.
#[derive(Clone)]
pub struct Machine(Arc<Inner>);

struct Inner {
    name: &'static str,
    client: Client,
    set: Arc<Set>,
}

/// What all clusters of a test share.
struct Set {
    dir: tempfile::TempDir,
    bin: PathBuf,
}

impl Machine {
    /// Starts a cluster and waits for its node; `more` are arguments of deploy/local-kube.
    pub async fn up(more: &[&str]) -> Self {
        let [machine] = Self::all_up(["kpa"], more).await;
        machine
    }

    /// Starts clusters with these names.
    pub async fn all_up<const N: usize>(names: [&'static str; N], more: &[&str]) -> [Self; N] {
        let bin = PathBuf::from(std::env::var_os("DROVER_KUBE_BIN").unwrap());
        let dir = tempfile::Builder::new().prefix("kpa").tempdir().unwrap();
        let image = Image::new(IMAGE, "/bin/drover-autoscaler").built(Path::new(AGENT), "/bin/drover-autoscaler").write(dir.path());
        let script = repository().join("deploy/local-kube/kube.sh");
        let owner = std::process::id().to_string();
        let all = names.join(",");
        let arguments = ["up", "--real", "--names", &all, "--nodes", "1", "--owner", &owner, "--dir"];
        run(Command::new(script).args(arguments).arg(dir.path().join("set")).args(more).env("EXTRA_IMAGES", image)).await;
        let set = Arc::new(Set { dir, bin });
        let mut clients = Vec::new();
        for name in names {
            let config = Kubeconfig::read_from(set.of(name).join("kubeconfig")).unwrap();
            let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
            clients.push(Client::try_from(config).unwrap());
        }
        std::array::from_fn(|at| Self(Arc::new(Inner { name: names[at], client: clients[at].clone(), set: set.clone() })))
    }

    /// A client of its API server, as administrator.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// The kubeconfig of its administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.0.set.of(self.0.name).join("kubeconfig")
    }

    /// Applies agent, activator and example as documented, except for the image, IP addresses instead of names (the cluster has no DNS) and
    /// windows of seconds.
    pub async fn apply_documented(&self) {
        for file in ["crd.yaml", "rbac.yaml", "agent.yaml"] {
            self.apply(file, "").await;
        }
        let service = self.find("api/v1/namespaces/kube-system/services/drover-autoscaler").await.expect("it was just applied");
        let address = service["spec"]["clusterIP"].as_str().unwrap();
        for file in ["activator.yaml", "examples/scale-to-zero.yaml"] {
            self.apply(file, address).await;
        }
        for deployment in ["drover-autoscaler", "drover-activator"] {
            self.kubectl(&format!("-n kube-system rollout status deployment/{deployment} --timeout=180s")).await;
        }
    }

    /// Applies the agent as documented, except for the image; returns the addresses of its pods.
    pub async fn apply_agent(&self) -> Vec<String> {
        for file in ["crd.yaml", "rbac.yaml", "agent.yaml"] {
            self.apply(file, "").await;
        }
        self.kubectl("-n kube-system rollout status deployment/drover-autoscaler --timeout=180s").await;
        let addresses = "-n kube-system get pods -l app=drover-autoscaler -o jsonpath={.items[*].status.podIP}";
        self.kubectl(addresses).await.split_whitespace().map(str::to_owned).collect()
    }

    /// Lets an account read and write the tables of learners at the agent; returns its token.
    pub async fn allow_tables(&self) -> String {
        let grant = "create rolebinding tables --clusterrole=drover-autoscaler-tables --serviceaccount=kube-system:drover-autoscaler";
        self.kubectl(grant).await;
        self.kubectl("create token default --audience drover-autoscaler").await.trim().to_owned()
    }

    /// Gives the node's CPU priority over everything else on the machine, so that the measured capacity stays valid.
    pub fn favour(&self) {
        let config = std::fs::read_to_string(self.0.set.of(self.0.name).join("nodes/1/etc/kubelet.yaml")).unwrap();
        let root = config.lines().find_map(|line| line.strip_prefix("cgroupRoot: /")).unwrap().trim();
        std::fs::write(Path::new("/sys/fs/cgroup/cpu").join(root).join("cpu.shares"), "65536").unwrap();
    }

    /// A path in the test's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.set.dir.path().join(name)
    }

    /// Writes a file in the test's directory.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    async fn apply(&self, file: &str, agent: &str) {
        let text = std::fs::read_to_string(repository().join("deploy/autoscaler").join(file)).unwrap();
        let text = text.replace("drover:dev", IMAGE).replace("http://drover-autoscaler.kube-system:9465", &format!("http://{agent}:9465"));
        let quick = "kpa: {containerConcurrency: 10, stableWindow: 6, scaleToZeroGracePeriod: 2}";
        let text = text.replace("kpa: {containerConcurrency: 10}", quick).replace("maxReplicas: 10", "maxReplicas: 3");
        let changed = self.write("apply.yaml", &text);
        self.kubectl(&format!("apply -f {}", changed.display())).await;
    }

    /// Runs kubectl in the namespace `default`, and returns its output.
    pub async fn kubectl(&self, arguments: &str) -> String {
        let mut command = Command::new(self.0.set.bin.join("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments.split_whitespace());
        run(&mut command).await
    }

    /// GET of a path in the namespace `default`, which must exist.
    pub async fn get(&self, path: &str) -> Value {
        self.find(&format!("api/v1/namespaces/default/{path}")).await.unwrap_or_else(|| panic!("{path} is not there"))
    }

    /// GET of a full path; none if it does not exist.
    pub async fn find(&self, path: &str) -> Option<Value> {
        self.0.client.request(http::Request::get(format!("/{path}")).body(Vec::new()).unwrap()).await.ok()
    }

    /// Runs bash in the node; returns whether it succeeded.
    pub async fn inside(&self, script: &str) -> bool {
        let node = repository().join("deploy/local-kube/node/node.sh");
        let cluster = self.0.set.of(self.0.name);
        let mut command = Command::new(node);
        command.arg("exec").arg(cluster).args(["1", "timeout", "2", "bash", "-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().await.unwrap().success()
    }
}

impl Set {
    fn of(&self, name: &str) -> PathBuf {
        self.dir.path().join("set").join(name)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for of in ["deployment/drover-autoscaler --all-pods", "deployment/drover-activator"] {
                let mut logs = std::process::Command::new(self.set.bin.join("kubectl"));
                let logs = logs.arg("--kubeconfig").arg(self.set.of(self.name).join("kubeconfig")).args(["-n", "kube-system", "logs"]);
                if let Ok(output) = logs.args(of.split(' ')).output() {
                    say(&String::from_utf8_lossy(&output.stdout));
                }
            }
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let script = repository().join("deploy/local-kube/kube.sh");
        let _ = std::process::Command::new(script).args(["down", "--dir"]).arg(self.dir.path().join("set")).stderr(Stdio::null()).status();
    }
}

/// Runs a command that must succeed, and returns its output.
pub async fn run(command: &mut Command) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output =
        tokio::time::timeout(PATIENCE, command.env("PATH", path).kill_on_drop(true).output()).await.expect("it takes too long").unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
