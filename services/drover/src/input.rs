//! Reads what `-f`, `-k` and `--chart` name: files, folders and addresses of manifests, stdin, kustomizations, charts. Changes nothing.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use drover_manifest::{Manifest, objects};

use crate::{chart, chart_folder};

/// Longest time that an address may take to answer.
const FETCHED: Duration = Duration::from_secs(60);
/// Most bytes that are read from an address.
const MOST_BYTES: usize = 32 << 20;

/// What to read.
#[derive(Debug, Args)]
pub struct InputArgs {
    /// Manifest file (YAML or JSON), directory of manifests, directory or .tgz of a Helm chart, or the http(s) address of a file; `-`
    /// reads manifests from stdin. May be repeated for manifests.
    #[arg(short = 'f', long = "filename", value_name = "PATH", required_unless_present_any = ["kustomize", "chart"])]
    pub paths: Vec<PathBuf>,
    /// Also read the directories inside directories.
    #[arg(short = 'R', long, requires = "paths")]
    pub recursive: bool,
    /// Directory of a kustomization, built by kustomize or kubectl.
    #[arg(short = 'k', long, value_name = "DIR", conflicts_with = "paths")]
    pub kustomize: Option<PathBuf>,
    #[command(flatten)]
    pub source: chart::ChartArgs,
}

impl InputArgs {
    /// Reads what the options name.
    ///
    /// # Errors
    /// It cannot be read, or does not hold Kubernetes objects or a chart.
    pub async fn read(&self) -> Result<Input> {
        match (&self.kustomize, &self.source.chart) {
            (Some(folder), _) => kustomize(folder),
            (None, Some(chart)) => Ok(Input::Archive(self.source.fetch(chart)?)),
            (None, None) => read(&self.paths, self.recursive).await,
        }
    }
}

/// What was read.
pub enum Input {
    /// Objects of manifests, in the order of the files.
    Manifests(Vec<Manifest>),
    /// A Helm chart, or an archive of manifests: a tar.gz that Drover's services unpack.
    Archive(Vec<u8>),
}

const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Reads files, folders, addresses and `-` (stdin), in this order. With `recursive` also the folders inside folders.
///
/// # Errors
/// A path cannot be read, or does not hold Kubernetes objects or a chart.
pub async fn read(paths: &[PathBuf], recursive: bool) -> Result<Input> {
    let mut manifests = Vec::new();
    for path in paths {
        let read = match path.to_str().filter(|path| path.starts_with("https://") || path.starts_with("http://")) {
            Some(address) => fetch(address).await.and_then(|bytes| file(bytes, address)),
            None => read_one(path, recursive),
        };
        match read.with_context(|| format!("cannot deploy {}", path.display()))? {
            Input::Manifests(more) => manifests.extend(more),
            Input::Archive(archive) => {
                ensure!(paths.len() == 1, "{} is a chart or an archive and cannot be deployed together with other files", path.display());
                return Ok(Input::Archive(archive));
            }
        }
    }
    ensure!(!manifests.is_empty(), "there are no Kubernetes objects in {}", listed(paths));
    Ok(Input::Manifests(manifests))
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Reads stdin (`-`), a file, or a folder.
fn read_one(path: &Path, recursive: bool) -> Result<Input> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
        return Ok(Input::Manifests(objects::read("stdin", &text)?));
    }
    let meta = std::fs::metadata(path)?;
    if meta.is_dir() {
        if path.join("Chart.yaml").is_file() {
            return Ok(Input::Archive(chart_folder::pack(path)?));
        }
        if let Some(name) = KUSTOMIZATIONS.iter().find(|name| path.join(name).is_file()) {
            bail!("it has a {name}; deploy it with `-k {}`", path.display());
        }
        return folder(path, recursive);
    }
    file(std::fs::read(path)?, &path.display().to_string())
}

/// The content of a file called `name` in messages.
fn file(bytes: Vec<u8>, name: &str) -> Result<Input> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(Input::Archive(bytes));
    }
    let text = String::from_utf8(bytes).context("it is neither text nor an archive (.tgz)")?;
    Ok(Input::Manifests(objects::read(name, &text)?))
}

/// What an address answers. It gets no credential of Drover.
async fn fetch(address: &str) -> Result<Vec<u8>> {
    let client = reqwest::Client::builder().timeout(FETCHED).build()?;
    let mut answer = client.get(address).send().await.and_then(reqwest::Response::error_for_status)?;
    let mut bytes = Vec::new();
    while let Some(more) = answer.chunk().await? {
        bytes.extend_from_slice(&more);
        ensure!(bytes.len() <= MOST_BYTES, "it has more than {} MiB", MOST_BYTES >> 20);
    }
    Ok(bytes)
}

fn folder(path: &Path, recursive: bool) -> Result<Input> {
    let (mut files, mut folders) = (Vec::new(), 0);
    gather(path, recursive, &mut files, &mut folders)?;
    if files.is_empty() {
        let hint = if folders > 0 && !recursive { "; `-R` also reads the folders in it" } else { "" };
        bail!("it contains no .yaml, .yml or .json file{hint}");
    }
    let mut manifests = Vec::new();
    for file in files {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {name}"))?;
        manifests.extend(objects::read(&name, &text)?);
    }
    Ok(Input::Manifests(manifests))
}

/// The manifest files of a folder, in alphabetical order; files before folders.
fn gather(path: &Path, recursive: bool, files: &mut Vec<PathBuf>, folders: &mut usize) -> Result<()> {
    let entries = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
    let mut entries = entries.with_context(|| format!("cannot read {}", path.display()))?;
    entries.sort();
    let is_manifest =
        |path: &PathBuf| path.extension().and_then(|end| end.to_str()).is_some_and(|end| ["yaml", "yml", "json"].contains(&end));
    files.extend(entries.iter().filter(|entry| entry.is_file() && is_manifest(entry)).cloned());
    // A link to a folder above would be read without end.
    for folder in entries.iter().filter(|entry| entry.is_dir() && !entry.is_symlink()) {
        *folders += 1;
        if recursive {
            gather(folder, recursive, files, folders)?;
        }
    }
    Ok(())
}

/// Builds a kustomization with kustomize or kubectl, whichever is found first: `$DROVER_KUSTOMIZE`, kustomize or kubectl on PATH, the
/// kubectl that `deploy/local-kube` built (`$DROVER_KUBE_BIN`).
///
/// # Errors
/// Neither is found, or the kustomization does not build.
pub fn kustomize(folder: &Path) -> Result<Input> {
    let program = kustomize_program().context("`-k` needs kustomize or kubectl, and neither is on PATH; DROVER_KUSTOMIZE may name one")?;
    let is_kubectl = program.file_stem().is_some_and(|name| name == "kubectl");
    let output = Command::new(&program)
        .arg(if is_kubectl { "kustomize" } else { "build" })
        .arg(folder)
        .output()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} cannot build {}: {}", program.display(), folder.display(), said.trim());
    if !said.trim().is_empty() {
        eprintln!("{}", said.trim());
    }
    let text = String::from_utf8(output.stdout).context("kustomize printed something that is not text")?;
    let manifests = objects::read(&format!("the kustomization {}", folder.display()), &text)?;
    ensure!(!manifests.is_empty(), "the kustomization {} has no objects", folder.display());
    Ok(Input::Manifests(manifests))
}

/// The program that builds kustomizations.
pub fn kustomize_program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("DROVER_KUSTOMIZE").filter(|path| !path.is_empty()) {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file());
    let built = || {
        let folder = std::env::var_os("DROVER_KUBE_BIN").filter(|folder| !folder.is_empty());
        folder.map(|folder| Path::new(&folder).join("kubectl")).filter(|program| program.is_file())
    };
    on_path("kustomize").or_else(|| on_path("kubectl")).or_else(built)
}
