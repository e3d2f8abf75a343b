//! A containerd of the test's own: own root, state, socket and runc directory, and a memory-limited cgroup as "the node". Touches no other
//! instance; when it is dropped nothing of it is left.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use drover_memory_guard::cgroup::{Group, Hierarchy};
use drover_memory_guard::proto::runtime::v1 as cri;
use drover_memory_guard::runtime::Runtime;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::agent::{contains, processes};
use super::config;

/// The image of `workload.c`.
pub const IMAGE: &str = "localhost/workload:1";
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the machine lacks something for a real containerd. That is said past the capture of test output; root, for whom `make test`
/// installs everything, may leave nothing out.
pub fn missing(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    let dirs = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"];
    let there = |program: &&str| dirs.iter().any(|dir| Path::new(dir).join(*program).exists());
    let mut lacks: Vec<&str> = ["containerd", "runc", "ctr", "cc", "python3"].into_iter().filter(|program| !there(program)).collect();
    if !root {
        lacks.push("root");
    }
    if Hierarchy::detect(Path::new("/sys/fs/cgroup")).is_err() {
        lacks.push("a cgroup memory controller");
    }
    if lacks.is_empty() {
        return false;
    }
    let skipped = format!("SKIPPED, proves nothing: {test} lacks {} (as root: deploy/setup.sh real)", lacks.join(", "));
    assert!(!(root && std::env::var_os("DROVER_NO_SKIPS").is_some()), "{skipped}");
    say(&skipped);
    true
}

/// Says something past the capture of test output.
pub fn say(words: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{words}");
}

/// The daemon and its node.
pub struct Containerd {
    pub dir: tempfile::TempDir,
    pub socket: PathBuf,
    pub runtime: Runtime,
    pub hierarchy: Hierarchy,
    /// Path of the node's cgroup.
    pub node: String,
    version: Version,
    child: Child,
}

/// Which one.
#[derive(Clone, Debug)]
pub enum Version {
    /// Debian's 1.6.
    Debian,
    /// 2, from that directory (`deploy/local-kube/containerd/build.sh`).
    Two(PathBuf),
}

impl Version {
    /// containerd 2, built if need be; with a warm cache of Go modules that takes about two minutes on idle cores.
    pub fn two() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube/containerd/build.sh");
        let built = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
        assert!(built.status.success(), "containerd 2 cannot be built");
        Self::Two(PathBuf::from(String::from_utf8(built.stdout).unwrap().trim()))
    }

    fn path(&self) -> String {
        let debian = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        match self {
            Self::Debian => debian,
            Self::Two(dir) => format!("{}:{debian}", dir.display()),
        }
    }
}

/// A container to be made.
#[derive(Clone)]
pub struct Spec {
    pub name: String,
    pub args: Vec<String>,
    pub memory: i64,
    pub quota: i64,
    pub labels: HashMap<String, String>,
}

impl Spec {
    pub fn new(name: &str, args: &[&str]) -> Self {
        let labels = HashMap::from([("memguard/pausable".to_owned(), "true".to_owned())]);
        Self { name: name.to_owned(), args: args.iter().map(|arg| (*arg).to_owned()).collect(), memory: 0, quota: 20_000, labels }
    }
}

impl Containerd {
    /// Starts it, with a node of `memory` bytes.
    pub async fn start(memory: u64) -> Self {
        Self::start_version(memory, Version::Debian).await
    }

    /// The same of any version.
    pub async fn start_version(memory: u64, version: Version) -> Self {
        let dir = tempfile::Builder::new().prefix("mg").tempdir().unwrap();
        let node = format!("/drover-mg-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let hierarchy = Hierarchy::detect(Path::new("/sys/fs/cgroup")).unwrap();
        let group = hierarchy.group_at(&node);
        std::fs::create_dir_all(group.memory_dir()).unwrap();
        let limit = if hierarchy.version() == "v2" { "memory.max" } else { "memory.limit_in_bytes" };
        std::fs::write(group.memory_dir().join(limit), memory.to_string()).unwrap();
        let socket = dir.path().join("c.sock");
        let config = if matches!(version, Version::Debian) { config::debian(dir.path()) } else { config::two(dir.path()) };
        std::fs::write(dir.path().join("config.toml"), config).unwrap();
        let runtime = Runtime::at(&socket, Duration::from_secs(30));
        let child = daemon(dir.path(), &version);
        let containerd = Self { dir, socket, runtime, hierarchy, node, version, child };
        containerd.answers().await;
        containerd.import();
        containerd.until_image().await;
        containerd
    }

    /// Kills the daemon, as a crash would. Containers go on.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the daemon again.
    pub async fn again(&mut self) {
        self.child = daemon(self.dir.path(), &self.version);
        self.answers().await;
    }

    async fn answers(&self) {
        let began = Instant::now();
        while self.runtime.version().await.is_err() {
            assert!(began.elapsed() < super::PATIENCE, "containerd does not answer:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn import(&self) {
        let image = image(self.dir.path());
        run(Command::new("ctr").arg("-a").arg(&self.socket).args(["-n", "k8s.io", "images", "import"]).arg(&image));
    }

    /// The CRI side hears of an import a little later.
    async fn until_image(&self) {
        let mut images = cri::image_service_client::ImageServiceClient::new(self.runtime.channel());
        let began = Instant::now();
        loop {
            let image = Some(cri::ImageSpec { image: IMAGE.into(), ..Default::default() });
            let answer = images.image_status(cri::ImageStatusRequest { image, verbose: false }).await.unwrap();
            if answer.into_inner().image.is_some() {
                return;
            }
            assert!(began.elapsed() < super::PATIENCE, "the image does not appear");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A pod's sandbox; its containers lie below the node's cgroup, as the kubelet would place them.
    pub async fn sandbox(&self, spec: &Spec) -> (String, cri::PodSandboxConfig) {
        let options = cri::NamespaceOption { network: cri::NamespaceMode::Node.into(), ..Default::default() };
        let context = cri::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        let config = cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: spec.name.clone(),
                uid: format!("uid-{}", spec.name),
                namespace: "jobs".into(),
                attempt: 0,
            }),
            log_directory: self.dir.path().join("logs").display().to_string(),
            labels: spec.labels.clone(),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/kubepods/burstable/pod{}", self.node, spec.name),
                security_context: Some(context),
                ..Default::default()
            }),
            ..Default::default()
        };
        let request = cri::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let answer = self.runtime.raw().run_pod_sandbox(request).await.unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
        (answer.into_inner().pod_sandbox_id, config)
    }

    /// Makes a container and starts it.
    pub async fn container(&self, sandbox: &(String, cri::PodSandboxConfig), spec: &Spec, attempt: u32) -> String {
        let id = self.create(sandbox, spec, attempt).await.unwrap();
        self.runtime.raw().start_container(cri::StartContainerRequest { container_id: id.clone() }).await.unwrap();
        id
    }

    /// Makes a container, if the runtime agrees.
    pub async fn create(&self, sandbox: &(String, cri::PodSandboxConfig), spec: &Spec, attempt: u32) -> Result<String, tonic::Status> {
        let resources = cri::LinuxContainerResources {
            cpu_period: if spec.quota > 0 { 100_000 } else { 0 },
            cpu_quota: spec.quota,
            memory_limit_in_bytes: spec.memory,
            oom_score_adj: 1000,
            ..Default::default()
        };
        let config = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: "main".into(), attempt }),
            image: Some(cri::ImageSpec { image: IMAGE.into(), ..Default::default() }),
            args: spec.args.clone(),
            labels: HashMap::from([("io.kubernetes.container.name".to_owned(), "main".to_owned())]),
            linux: Some(cri::LinuxContainerConfig { resources: Some(resources), ..Default::default() }),
            ..Default::default()
        };
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.0.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox.1.clone()),
        };
        Ok(self.runtime.raw().create_container(request).await?.into_inner().container_id)
    }

    /// A pod with one container.
    pub async fn pod(&self, spec: &Spec) -> String {
        let sandbox = self.sandbox(spec).await;
        self.container(&sandbox, spec, 0).await
    }

    /// The cgroup of a container.
    pub async fn group(&self, id: &str) -> Group {
        let pid = self.runtime.inspect(id).await.unwrap().pid;
        self.hierarchy.group_of(&std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap()).unwrap()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let socket = self.socket.to_str().unwrap().as_bytes().to_vec();
        let groups = groups_below(&self.node);
        for dir in &groups {
            let _ = std::fs::write(dir.join("freezer.state"), "THAWED");
            let _ = std::fs::write(dir.join("cgroup.freeze"), "0");
        }
        // The shims first, or they would report to a daemon that is gone for seconds.
        let shims = processes().filter(|(_, line)| contains(line, b"containerd-shim") && contains(line, &socket)).map(|(pid, _)| pid);
        let inside = groups.iter().flat_map(|dir| pids(dir));
        for pid in shims.chain(inside).collect::<Vec<_>>() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mine = self.dir.path().to_str().unwrap();
        for mount in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)).filter(|path| path.starts_with(mine)) {
            let _ = Command::new("umount").args(["-l", mount]).status();
        }
        let began = Instant::now();
        while groups_below(&self.node).iter().rev().filter(|dir| std::fs::remove_dir(dir).is_err()).count() > 0 {
            if began.elapsed() > Duration::from_secs(5) {
                eprintln!("cgroups of {} could not be removed", self.node);
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The directories of a group and those below it, in every hierarchy, parents first.
fn groups_below(node: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let roots = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path()).chain([PathBuf::from("/sys/fs/cgroup")]);
    // cpu and cpuacct may be links to one directory.
    let mut stack: Vec<PathBuf> =
        roots.filter(|root| !root.is_symlink()).map(|root| root.join(&node[1..])).filter(|dir| dir.is_dir()).collect();
    while let Some(dir) = stack.pop() {
        stack.extend(std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir()));
        found.push(dir);
    }
    found.sort();
    found
}

fn pids(dir: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn daemon(dir: &Path, version: &Version) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).unwrap();
    let mut command = match version {
        Version::Debian => Command::new("containerd"),
        Version::Two(bin) => Command::new(bin.join("containerd")),
    };
    command.env("PATH", version.path()).arg("-c").arg(dir.join("config.toml"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// An archive with the image of the workload.
pub fn image(dir: &Path) -> PathBuf {
    let (program, image) = (dir.join("workload"), dir.join("image.tar"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(Command::new("cc").args(["-O2", "-static", "-o"]).arg(&program).arg(here.join("tests/guard/workload.c")));
    let file = format!("{}=/workload", program.display());
    let script = here.join("../../deploy/local-kube/images/mkimage.py");
    run(Command::new("python3").arg(script).arg(&image).args([IMAGE, "/workload", &file]));
    image
}

fn run(command: &mut Command) {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = command.env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
