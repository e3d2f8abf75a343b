//! `drover dev kube`: real Kubernetes control planes on this machine.
//!
//! The work is done by the scripts of deploy/local-kube, which are part of this program (unpacked into the cache), or by those in
//! `DROVER_LOCAL_KUBE`. This module shows their progress and turns their output into tables, JSON and errors. It keeps no state: the
//! scripts find out what runs from the directory of the set.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;

use super::scripts;
use drover::globals::Format;
use drover::output;

/// `drover dev kube …`.
#[derive(Debug, Subcommand)]
pub enum KubeCommand {
    /// Start clusters, or restart and add what is missing of a running set. The first start builds Kubernetes, which takes about 8 minutes.
    #[command(after_help = "Example:\n  drover dev kube up --clusters 3 --nodes 5 --metrics")]
    Up(Up),
    /// Stop the clusters of a set and remove their state.
    #[command(after_help = "Examples:\n  drover dev kube down\n  drover dev kube down --only member-2 --keep")]
    Down(Down),
    /// List the clusters of a set.
    List(Set),
}

/// A set of clusters.
#[derive(Args, Clone, Debug, Default)]
pub struct Set {
    /// Directory of the set. Sets in different directories are independent [default: ~/.cache/drover/run/kube].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Options of `up`.
#[derive(Args, Clone, Debug)]
pub struct Up {
    /// Number of clusters, which are called member-1, member-2, …
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=250))]
    pub clusters: u16,
    /// Names of the clusters, instead of their number.
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', conflicts_with = "clusters")]
    pub names: Vec<String>,
    /// Number of nodes of each cluster.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=9999))]
    pub nodes: u16,
    /// CPU of each node [default: 4; for real nodes that of the machine].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<String>,
    /// Memory of each node [default: 8Gi; for real nodes that of the machine less 1Gi].
    #[arg(long, value_name = "MEMORY")]
    pub memory: Option<String>,
    /// Also start metrics-server, which has its first figures after about 30 s.
    #[arg(long)]
    pub metrics: bool,
    /// Run real kubelets with containerd instead of simulated nodes; needs root.
    #[arg(long)]
    pub real: bool,
    /// Also import this image into the nodes, an archive as `docker save` writes it; may be repeated.
    #[arg(long = "image", value_name = "FILE", requires = "real")]
    pub images: Vec<PathBuf>,
    /// Stop the set when the process with this id ends, for whatever reason.
    #[arg(long, value_name = "PID")]
    pub owner: Option<u32>,
    /// The set.
    #[command(flatten)]
    pub set: Set,
}

/// Options of `down`.
#[derive(Args, Clone, Debug, Default)]
pub struct Down {
    /// Stop only this cluster.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Keep the state of the clusters for the next `up`.
    #[arg(long)]
    pub keep: bool,
    /// The set.
    #[command(flatten)]
    pub set: Set,
}

/// One cluster of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cluster {
    pub name: String,
    /// Address of its API server.
    pub server: String,
    /// Kubeconfig of an administrator, complete in itself.
    pub kubeconfig: PathBuf,
    /// `running`, `stopped`, or `damaged`, which means that only some of its programs run; `up` starts the others.
    pub state: String,
    /// `kwok` (simulated) or `real`.
    pub nodes: String,
    /// Whether metrics-server runs.
    pub metrics: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// A script failed; the error is the last line that it printed.
pub async fn run(command: KubeCommand, format: Format) -> Result<ExitCode> {
    let clusters = match command {
        KubeCommand::Up(options) => up(&options).await?,
        KubeCommand::List(set) => list(&set).await?,
        KubeCommand::Down(options) => {
            down(&options).await?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    output::print(format, &clusters, |_| {
        let rows = clusters.iter().map(|c| {
            let metrics = if c.metrics { "metrics" } else { "-" };
            [&c.name, &c.state, &c.nodes, metrics, &c.server, &c.kubeconfig.display().to_string()].map(str::to_owned).to_vec()
        });
        (vec!["NAME", "STATE", "NODES", "METRICS", "SERVER", "KUBECONFIG"], rows.collect())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the set, or the missing parts of it, and returns its clusters once their nodes are ready.
///
/// # Errors
/// See [`run`].
pub async fn up(options: &Up) -> Result<Vec<Cluster>> {
    let mut args: Vec<OsString> = vec!["up".into(), "--nodes".into(), options.nodes.to_string().into()];
    let mut flag = |name: &str, value: Option<OsString>| {
        if let Some(value) = value {
            args.extend([name.into(), value]);
        }
    };
    flag("--clusters", options.names.is_empty().then(|| options.clusters.to_string().into()));
    flag("--names", (!options.names.is_empty()).then(|| options.names.join(",").into()));
    flag("--cpu", options.cpu.as_ref().map(Into::into));
    flag("--memory", options.memory.as_ref().map(Into::into));
    flag("--owner", options.owner.map(|pid| pid.to_string().into()));
    args.extend(options.metrics.then(|| "--metrics".into()));
    args.extend(options.real.then(|| "--real".into()));
    parse(&kube(args, &options.set, "starting", &options.images).await?)
}

/// Stops the set, or one cluster of it.
///
/// # Errors
/// See [`run`].
pub async fn down(options: &Down) -> Result<()> {
    let mut args: Vec<OsString> = vec!["down".into()];
    if let Some(only) = &options.only {
        args.extend(["--only".into(), only.into()]);
    }
    args.extend(options.keep.then(|| "--keep".into()));
    kube(args, &options.set, "stopping", &[]).await.map(drop)
}

/// Takes a set down when it is dropped, and waits for that: so an interrupted command leaves no real node behind, with its namespaces and
/// mounts. Made before the set is started.
pub struct TakenDown(pub Set);

impl Drop for TakenDown {
    fn drop(&mut self) {
        let (Some(dir), Ok(scripts)) = (&self.0.dir, scripts::directory()) else { return };
        let mut down = std::process::Command::new("bash");
        down.arg(scripts.join("kube.sh")).args(["down", "--dir"]).arg(dir);
        // Ctrl-C on the terminal is not for it: it has to end its work.
        let _ = down.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Starts one cluster with one real node, which has this image, in a directory. It is taken down when the second part is dropped, and if it
/// does not start.
///
/// # Errors
/// See [`run`].
pub async fn up_on_a_real_node(name: &str, image: PathBuf, dir: PathBuf) -> Result<(Cluster, TakenDown)> {
    let set = Set { dir: Some(dir) };
    let down = TakenDown(set.clone());
    let options = Up {
        clusters: 1,
        names: vec![name.to_owned()],
        nodes: 1,
        cpu: None,
        memory: None,
        metrics: false,
        real: true,
        images: vec![image],
        owner: Some(std::process::id()),
        set,
    };
    let clusters = up(&options).await.context("a cluster with a real node")?;
    Ok((clusters.into_iter().next().context("no cluster came up")?, down))
}

/// The clusters of the set.
///
/// # Errors
/// See [`run`].
pub async fn list(set: &Set) -> Result<Vec<Cluster>> {
    parse(&kube(vec!["list".into()], set, "looking", &[]).await?)
}

/// Runs `kube.sh`. Shows its stderr as progress and returns its stdout; if it fails, its last line on stderr is the error.
async fn kube(mut args: Vec<OsString>, set: &Set, doing: &'static str, images: &[PathBuf]) -> Result<String> {
    if let Some(dir) = &set.dir {
        args.extend(["--dir".into(), dir.into()]);
    }
    let images = images.iter().map(archive).collect::<Result<Vec<_>>>()?;
    let script = scripts::directory()?.join("kube.sh");
    let mut child = Command::new("bash")
        .arg(&script)
        .args(args)
        .env("EXTRA_IMAGES", images.join(" "))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run bash, which the scripts of local clusters need")?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut progress = Progress::new(doing);
    let (result, ()) = tokio::join!(read(stdout), progress.follow(stderr));
    let last_words = progress.end();
    if !child.wait().await?.success() {
        bail!(last_words.unwrap_or_else(|| format!("{} failed and did not say why", script.display())));
    }
    if let Some(words) = last_words {
        eprintln!("{words}");
    }
    Ok(result)
}

/// The path of an archive as the script takes it, which separates paths by blanks.
fn archive(image: &PathBuf) -> Result<String> {
    let path = std::path::absolute(image)?;
    ensure!(path.is_file(), "there is no image {}: give an archive that `docker save` has written", image.display());
    match path.to_str() {
        Some(text) if !text.contains(char::is_whitespace) => Ok(text.to_owned()),
        _ => bail!("the path of the image {} has a blank, with which it cannot be imported: copy it elsewhere", path.display()),
    }
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut text = String::new();
    if let Some(mut from) = from {
        // If this fails the script has failed too, which its exit code tells.
        let _ = from.read_to_string(&mut text).await;
    }
    text
}

/// Shows each line when the next one is read, so that the last one is still available: as the error, or to be shown at the end.
struct Progress {
    bar: Option<ProgressBar>,
    last: Option<String>,
}

impl Progress {
    fn new(doing: &'static str) -> Self {
        let bar = output::is_terminal().then(|| {
            let bar = ProgressBar::new_spinner().with_message(doing);
            bar.set_style(
                ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar, last: None }
    }

    async fn follow(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(from) = from else { return };
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            match &self.bar {
                Some(bar) => {
                    bar.set_message(line.clone());
                    self.last.iter().filter(|line| !line.ends_with(COUNTING)).for_each(|line| bar.println(line));
                }
                None => self.last.iter().for_each(|line| eprintln!("{line}")),
            }
            self.last = Some(line);
        }
    }

    fn end(self) -> Option<String> {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        self.last
    }
}

/// How those lines of build.sh end that only count. On a terminal they are not kept.
const COUNTING: &str = " packages compiled";

fn parse(lines: &str) -> Result<Vec<Cluster>> {
    lines
        .lines()
        .map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
            [name, server, kubeconfig, state, nodes, metrics] => Ok(Cluster {
                name: name.to_owned(),
                server: server.to_owned(),
                kubeconfig: Path::new(kubeconfig).to_owned(),
                state: state.to_owned(),
                nodes: nodes.to_owned(),
                metrics: metrics == "metrics",
            }),
            _ => bail!("kube.sh printed {line:?}, which is no cluster: are the scripts in DROVER_LOCAL_KUBE of another version?"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_reads_a_cluster_per_line() {
        let clusters = parse("a\thttps://127.0.1.1:6443\t/x/a/kubeconfig\trunning\tkwok\tmetrics\n").unwrap();
        assert_eq!(clusters.len(), 1);
        assert_eq!((clusters[0].name.as_str(), clusters[0].metrics), ("a", true));
        assert!(parse("something else").is_err());
    }

    #[tokio::test]
    async fn embedded_scripts_list_and_stop_an_empty_set() {
        let dir = tempfile::tempdir().unwrap();
        let set = Set { dir: Some(dir.path().join("set")) };
        assert_eq!(list(&set).await.unwrap(), []);
        down(&Down { set: set.clone(), ..Down::default() }).await.unwrap();
        let error = down(&Down { only: Some("nobody".into()), set: Set { dir: Some(dir.path().into()) }, keep: false }).await.unwrap_err();
        assert!(error.to_string().contains("no cluster nobody"), "{error}");
    }

    #[tokio::test]
    async fn up_restarts_a_killed_api_server_and_the_set_ends_with_its_owner() {
        if drover_testkit::needs("DROVER_KUBE_BIN").is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let set = Set { dir: Some(dir.path().to_owned()) };
        let mut owner = Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
        let options = Up {
            clusters: 1,
            names: vec!["solo".into()],
            nodes: 2,
            cpu: None,
            memory: None,
            metrics: false,
            real: false,
            images: Vec::new(),
            owner: owner.id(),
            set: set.clone(),
        };
        let clusters = up(&options).await.unwrap();
        assert_eq!((clusters[0].name.as_str(), clusters[0].state.as_str()), ("solo", "running"));
        let kubeconfig = std::fs::read_to_string(&clusters[0].kubeconfig).unwrap();
        assert!(kubeconfig.contains("certificate-authority-data:") && !kubeconfig.contains("certificate-authority:"));

        let recorded = std::fs::read_to_string(dir.path().join("solo/pid/kube-apiserver")).unwrap();
        let pid = recorded.split(' ').next().unwrap().parse().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        until(&set, |clusters| clusters[0].state == "damaged").await;
        assert_eq!(up(&options).await.unwrap()[0].state, "running");

        owner.kill().await.unwrap();
        until(&set, <[Cluster]>::is_empty).await;
    }

    async fn until(set: &Set, holds: impl Fn(&[Cluster]) -> bool) {
        let seen = async {
            while !holds(&list(set).await.unwrap()) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), seen).await.expect("the expected state was not reached");
    }
}
