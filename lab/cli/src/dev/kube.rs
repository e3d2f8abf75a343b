//! `drover dev kube`: real Kubernetes control planes on this machine.
//!
//! The work is done by the scripts of deploy/local-kube, which are part of this binary (unpacked into the cache), or by those
//! in `DROVER_LOCAL_KUBE`. This module shows their progress and turns their words into tables, JSON and errors.
//! Invariant: it keeps no state; what runs is what the scripts find in the set's directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;

use super::scripts;
use drover::cli::Format;
use drover::output;

/// `drover dev kube …`.
#[derive(Debug, Subcommand)]
pub enum KubeCommand {
    /// Start clusters (again: start what died, add clusters and nodes). The first time builds Kubernetes, about 8 minutes.
    #[command(after_help = "Example:\n  drover dev kube up --clusters 3 --nodes 5 --metrics")]
    Up(Up),
    /// Stop the clusters of a set and remove their state.
    Down(Down),
    /// List the clusters of a set.
    List(Set),
}

/// Which set of clusters.
#[derive(Args, Clone, Debug, Default)]
pub struct Set {
    /// Directory of everything the set has; sets in different directories live side by side [default: ~/.cache/drover/run/kube].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// What to start.
#[derive(Args, Clone, Debug)]
pub struct Up {
    /// Number of clusters, called member-1, member-2, …
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=250))]
    pub clusters: u16,
    /// Their names instead.
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', conflicts_with = "clusters")]
    pub names: Vec<String>,
    /// Nodes per cluster.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=9999))]
    pub nodes: u16,
    /// Each node's CPU [default: 4; real nodes: the machine's].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<String>,
    /// Each node's memory [default: 8Gi; real nodes: the machine's less 1Gi].
    #[arg(long, value_name = "MEMORY")]
    pub memory: Option<String>,
    /// Start metrics-server too (its first figures come after about 30 s).
    #[arg(long)]
    pub metrics: bool,
    /// Real kubelets with containerd instead of simulated nodes (root).
    #[arg(long)]
    pub real: bool,
    /// Take the set down when this process ends, however it ends.
    #[arg(long, value_name = "PID")]
    pub owner: Option<u32>,
    /// The set.
    #[command(flatten)]
    pub set: Set,
}

/// What to stop.
#[derive(Args, Clone, Debug, Default)]
pub struct Down {
    /// Only this cluster.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Keep the state for the next `up`.
    #[arg(long)]
    pub keep: bool,
    /// The set.
    #[command(flatten)]
    pub set: Set,
}

/// One cluster of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cluster {
    /// Name.
    pub name: String,
    /// Address of its API server.
    pub server: String,
    /// Kubeconfig of an administrator, complete in itself.
    pub kubeconfig: PathBuf,
    /// `running`, `stopped`, or `damaged`: some of its programs run (`up` starts the others).
    pub state: String,
    /// `kwok` (simulated) or `real`.
    pub nodes: String,
    /// Whether metrics-server runs.
    pub metrics: bool,
}

/// Runs it.
///
/// # Errors
/// A script failed; the error is its own last words.
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

/// Starts the set, or what is missing of it, and returns its clusters when their nodes are ready.
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
    parse(&kube(args, &options.set, "starting").await?)
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
    kube(args, &options.set, "stopping").await.map(drop)
}

/// The clusters of the set.
///
/// # Errors
/// See [`run`].
pub async fn list(set: &Set) -> Result<Vec<Cluster>> {
    parse(&kube(vec!["list".into()], set, "looking").await?)
}

/// Runs `kube.sh`: its stderr becomes progress, its stdout the result, its last words the error.
async fn kube(mut args: Vec<OsString>, set: &Set, doing: &'static str) -> Result<String> {
    if let Some(dir) = &set.dir {
        args.extend(["--dir".into(), dir.into()]);
    }
    let script = scripts::directory()?.join("kube.sh");
    let mut child = Command::new("bash")
        .arg(&script)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run bash, which local clusters need")?;
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

async fn read(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut text = String::new();
    if let Some(mut from) = from {
        // What cannot be read is missing from the list, and the exit code tells.
        let _ = from.read_to_string(&mut text).await;
    }
    text
}

/// Shows each line when the next one comes, so that the last one is left over: as the error, or to be shown after all.
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

/// How build.sh's lines end that only count; on a terminal they are not kept.
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
            _ => bail!("kube.sh answered {line:?}: the scripts in DROVER_LOCAL_KUBE are of another version"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_script_is_a_cluster() {
        let clusters = parse("a\thttps://127.0.1.1:6443\t/x/a/kubeconfig\trunning\tkwok\tmetrics\n").unwrap();
        assert_eq!(clusters.len(), 1);
        assert_eq!((clusters[0].name.as_str(), clusters[0].metrics), ("a", true));
        assert!(parse("something else").is_err());
    }

    #[tokio::test]
    async fn the_embedded_scripts_run() {
        let dir = tempfile::tempdir().unwrap();
        let set = Set { dir: Some(dir.path().join("set")) };
        assert_eq!(list(&set).await.unwrap(), []);
        down(&Down { set: set.clone(), ..Down::default() }).await.unwrap();
        let error = down(&Down { only: Some("nobody".into()), set: Set { dir: Some(dir.path().into()) }, keep: false }).await.unwrap_err();
        assert!(error.to_string().contains("no cluster nobody"), "{error}");
    }

    /// A control plane comes up, is found again after its API server was killed, and goes with its owner.
    #[tokio::test]
    async fn a_real_control_plane_comes_and_goes() {
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
        tokio::time::timeout(Duration::from_secs(60), seen).await.expect("never seen");
    }
}
