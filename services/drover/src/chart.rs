//! Fetches charts from repositories and registries with helm.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

/// Which chart to fetch.
#[derive(Debug, Args)]
pub struct ChartArgs {
    /// Chart to fetch with helm: a name with `--repo`, `oci://REGISTRY/NAME`, `REPO/NAME` of a repository that helm knows, or the
    /// address of a .tgz.
    #[arg(long, value_name = "CHART", conflicts_with_all = ["paths", "kustomize"])]
    pub chart: Option<String>,
    /// Address of the repository that has the chart.
    #[arg(long, value_name = "URL", requires = "chart")]
    pub repo: Option<String>,
    /// Version of the chart, or a range as for helm [default: the newest stable one].
    #[arg(long, value_name = "VERSION", requires = "chart")]
    pub version: Option<String>,
}

/// The program helm: `$DROVER_HELM`, else the one on PATH.
pub fn helm() -> PathBuf {
    std::env::var_os("DROVER_HELM").filter(|path| !path.is_empty()).map_or_else(|| PathBuf::from("helm"), PathBuf::from)
}

impl ChartArgs {
    /// The archive of the chart `name`.
    ///
    /// # Errors
    /// helm is not found, or cannot fetch the chart.
    pub fn fetch(&self, name: &str) -> Result<Vec<u8>> {
        let helm = helm();
        let folder = tempfile::tempdir().context("no temporary folder for the chart")?;
        let mut command = Command::new(&helm);
        command.args(["pull", name, "--destination"]).arg(folder.path());
        for (option, value) in [("--repo", &self.repo), ("--version", &self.version)] {
            command.args(value.iter().flat_map(|value| [option, value]));
        }
        let output = command
            .output()
            .with_context(|| format!("`--chart` needs helm, and {} cannot be started; DROVER_HELM may name it", helm.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm cannot fetch the chart {name}: {}", said.trim().trim_start_matches("Error: "));
        let mut files = std::fs::read_dir(folder.path())?;
        let file = files.next().with_context(|| format!("helm fetched no chart {name}"))??;
        std::fs::read(file.path()).context("the fetched chart cannot be read")
    }
}
