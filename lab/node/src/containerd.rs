//! A private containerd: its own root, state, socket and runc directory, and a memory-limited cgroup that stands for the node. It does not
//! affect other instances; nothing of it is left when it is dropped.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::image::run;
use super::{CGROUPS, IMAGE, PATIENCE, contains, image, processes};
use drover_memory_guard::cgroup::{Group, Hierarchy};
use drover_memory_guard::proto::runtime::v1 as cri;
use drover_memory_guard::runtime::Runtime;

const DEBIAN: &str = include_str!("../../../deploy/local-kube/node/containerd.toml.in");
const TWO: &str = include_str!("../../../deploy/local-kube/node/containerd-2.toml.in");
/// Namespace of all pods.
pub const NAMESPACE: &str = "jobs";
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A containerd and its node.
#[derive(Debug)]
pub struct Containerd {
    /// Directory of all its files.
    pub dir: TempDir,
    /// Its socket.
    pub socket: PathBuf,
    /// Client of its CRI.
    pub runtime: Runtime,
    /// The cgroup hierarchy of this machine.
    pub hierarchy: Hierarchy,
    /// Path of the node's cgroup.
    pub node: String,
    version: Version,
    child: Child,
}

/// Version of containerd.
#[derive(Clone, Debug)]
pub enum Version {
    /// Version 1.6, as Debian packages it.
    Debian,
    /// Version 2 from this directory (`deploy/local-kube/containerd/build.sh`).
    Two(PathBuf),
}

impl Version {
    fn path(&self) -> String {
        let debian = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        match self {
            Self::Debian => debian,
            Self::Two(dir) => format!("{}:{debian}", dir.display()),
        }
    }

    fn config(&self, dir: &Path) -> String {
        let text = if matches!(self, Self::Debian) { DEBIAN } else { TWO };
        let dir = |part: &str| dir.join(part).display().to_string();
        let places = [("@ROOT@", dir("root")), ("@STATE@", dir("state")), ("@CNI@", dir("cni"))];
        let names = [("@PAUSE@", IMAGE.to_owned()), ("@SNAPSHOTTER@", "overlayfs".to_owned())];
        places.iter().chain(&names).fold(text.to_owned(), |text, (mark, value)| text.replace(mark, value))
    }

    fn daemon(&self, dir: &Path) -> Result<Child> {
        let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("log"))?;
        let mut command = Command::new(match self {
            Self::Debian => PathBuf::from("containerd"),
            Self::Two(bin) => bin.join("containerd"),
        });
        command.env("PATH", self.path()).arg("-c").arg(dir.join("config.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().context("containerd cannot be started")
    }
}

/// A container to be created.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Name of the pod.
    pub name: String,
    /// Arguments of the workload (`workload.c`).
    pub args: Vec<String>,
    /// Memory limit in bytes; 0 means none.
    pub memory: i64,
    /// CPU quota in microseconds per period; 0 means no limit.
    pub quota: i64,
    /// CPU period in microseconds.
    pub period: i64,
    /// Labels of the pod.
    pub labels: HashMap<String, String>,
    /// Uid of the pod.
    pub uid: String,
}

impl Spec {
    /// A container that may be paused, with a fifth of a CPU and without memory limit.
    pub fn new(name: &str, args: &[&str]) -> Self {
        let labels = HashMap::from([("memguard/pausable".to_owned(), "true".to_owned())]);
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self { name: name.to_owned(), args, memory: 0, quota: 20_000, period: 100_000, labels, uid: format!("uid-{name}") }
    }
}

/// A pod's sandbox.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Id of the sandbox.
    pub id: String,
    config: cri::PodSandboxConfig,
}

impl Containerd {
    /// Starts containerd, with a node of `memory` bytes and the workload's image.
    ///
    /// # Errors
    /// When the machine lacks something ([`super::lacking`]), or containerd does not answer in time.
    pub async fn start(memory: u64, version: Version) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("mg").tempdir()?;
        let node = format!("/drover-mg-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let hierarchy = Hierarchy::detect(Path::new(CGROUPS))?;
        let group = hierarchy.group_at(&node);
        fs::create_dir_all(group.memory_dir())?;
        let limit = if hierarchy.version() == "v2" { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(group.memory_dir().join(limit), memory.to_string())?;
        let socket = dir.path().join("state/containerd.sock");
        fs::write(dir.path().join("config.toml"), version.config(dir.path()))?;
        let runtime = Runtime::at(&socket, Duration::from_secs(30));
        let child = version.daemon(dir.path())?;
        let containerd = Self { dir, socket, runtime, hierarchy, node, version, child };
        containerd.answers().await?;
        let archive = image(containerd.dir.path())?;
        let import = ["-n", "k8s.io", "images", "import"].map(OsStr::new);
        run("ctr", [OsStr::new("-a"), containerd.socket.as_os_str()].into_iter().chain(import).chain([archive.as_os_str()]))?;
        containerd.until_image().await?;
        Ok(containerd)
    }

    /// Kills the daemon, like a crash. Containers continue.
    ///
    /// # Errors
    /// When the daemon has ended before.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts the daemon again.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub async fn again(&mut self) -> Result<()> {
        self.child = self.version.daemon(self.dir.path())?;
        self.answers().await
    }

    async fn answers(&self) -> Result<()> {
        let began = Instant::now();
        while self.runtime.version().await.is_err() {
            ensure!(began.elapsed() < PATIENCE, "containerd does not answer:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Waits for the image, which the CRI has only some time after the import.
    async fn until_image(&self) -> Result<()> {
        let mut images = cri::image_service_client::ImageServiceClient::new(self.runtime.channel());
        let began = Instant::now();
        loop {
            let image = Some(cri::ImageSpec { image: IMAGE.into(), ..Default::default() });
            let answer = images.image_status(cri::ImageStatusRequest { image, verbose: false }).await?;
            if answer.into_inner().image.is_some() {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "the image does not appear");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Creates the sandbox of a pod. Its containers are below the node's cgroup, where a kubelet would put them.
    ///
    /// # Errors
    /// When the runtime refuses.
    pub async fn sandbox(&self, spec: &Spec) -> Result<Pod> {
        let options = cri::NamespaceOption { network: cri::NamespaceMode::Node.into(), ..Default::default() };
        let context = cri::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        let config = cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: spec.name.clone(),
                uid: spec.uid.clone(),
                namespace: NAMESPACE.into(),
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
        match self.runtime.raw().run_pod_sandbox(request).await {
            Ok(answer) => Ok(Pod { id: answer.into_inner().pod_sandbox_id, config }),
            Err(error) => bail!("no sandbox for {}: {error}\n{}", spec.name, self.log()),
        }
    }

    /// Creates and starts a container and returns its id. A guard may freeze a container before it is started, and the runtime does not start
    /// it then; as a kubelet does, this tries again with a new one.
    ///
    /// # Errors
    /// When the runtime refuses.
    pub async fn container(&self, pod: &Pod, spec: &Spec, attempt: u32) -> Result<String> {
        let began = Instant::now();
        loop {
            let container_id = self.create(pod, spec, attempt).await?;
            match self.runtime.raw().start_container(cri::StartContainerRequest { container_id: container_id.clone() }).await {
                Ok(_) => return Ok(container_id),
                Err(error) if error.message().contains("in the paused state") && began.elapsed() < PATIENCE => {
                    self.runtime.raw().remove_container(cri::RemoveContainerRequest { container_id }).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Creates a container and returns its id.
    ///
    /// # Errors
    /// The status with which the runtime refuses.
    pub async fn create(&self, pod: &Pod, spec: &Spec, attempt: u32) -> Result<String, tonic::Status> {
        let resources = cri::LinuxContainerResources {
            cpu_period: if spec.quota > 0 { spec.period } else { 0 },
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
        let sandbox_config = Some(pod.config.clone());
        let request = cri::CreateContainerRequest { pod_sandbox_id: pod.id.clone(), config: Some(config), sandbox_config };
        Ok(self.runtime.raw().create_container(request).await?.into_inner().container_id)
    }

    /// Creates a pod with one container, starts it and returns the container's id.
    ///
    /// # Errors
    /// When the runtime refuses.
    pub async fn pod(&self, spec: &Spec) -> Result<String> {
        let pod = self.sandbox(spec).await?;
        self.container(&pod, spec, 0).await
    }

    /// The cgroup of a container.
    ///
    /// # Errors
    /// When the container does not run.
    pub async fn group(&self, id: &str) -> Result<Group> {
        let pid = self.runtime.inspect(id).await?.pid;
        Ok(self.hierarchy.group_of(&fs::read_to_string(format!("/proc/{pid}/cgroup"))?)?)
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let socket = self.socket.display().to_string().into_bytes();
        let groups = thaw_below(&self.node);
        // The shims first: otherwise they try for seconds to report to a daemon that has ended.
        let shims = processes().filter(|(_, line)| contains(line, b"containerd-shim") && contains(line, &socket)).map(|(pid, _)| pid);
        let inside = groups.iter().flat_map(|dir| pids(dir));
        for pid in shims.chain(inside).collect::<Vec<_>>() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounts = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for mount in mounts.filter(|path| Path::new(path).starts_with(self.dir.path())) {
            let _ = Command::new("umount").args(["-l", mount]).status();
        }
        let began = Instant::now();
        while groups_below(&self.node).iter().rev().filter(|dir| fs::remove_dir(dir).is_err()).count() > 0 {
            if began.elapsed() > Duration::from_secs(5) {
                eprintln!("cgroups of {} could not be removed", self.node);
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Thaws a cgroup and those below it, and returns their directories.
pub fn thaw_below(group: &str) -> Vec<PathBuf> {
    let groups = groups_below(group);
    for dir in &groups {
        let _ = fs::write(dir.join("freezer.state"), "THAWED");
        let _ = fs::write(dir.join("cgroup.freeze"), "0");
    }
    groups
}

/// The directories of a group and those below it, in every hierarchy, parents first.
fn groups_below(group: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let roots = fs::read_dir(CGROUPS).into_iter().flatten().flatten().map(|entry| entry.path()).chain([PathBuf::from(CGROUPS)]);
    // cpu and cpuacct may be links to one directory.
    let roots = roots.filter(|root| !root.is_symlink()).map(|root| root.join(group.trim_start_matches('/')));
    let mut stack: Vec<PathBuf> = roots.filter(|dir| dir.is_dir()).collect();
    while let Some(dir) = stack.pop() {
        stack.extend(fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir()));
        found.push(dir);
    }
    found.sort();
    found
}

fn pids(dir: &Path) -> Vec<i32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}
