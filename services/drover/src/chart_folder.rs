//! Packs the folder of a chart into an archive, with the charts that it depends on.
//!
//! A folder from a repository often names its dependencies without having them in `charts/`. Those that are folders beside it are packed
//! along; others are fetched with helm, in a copy, so that the user's folder stays as it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use drover_manifest::{Limits, yaml};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use crate::chart::helm;

/// The file that names dependencies: `Chart.yaml`, or `requirements.yaml` of charts for Helm 2; and the file that pins their versions.
const FILES: [(&str, &str); 2] = [("Chart.yaml", "Chart.lock"), ("requirements.yaml", "requirements.lock")];

/// A chart that another one needs.
struct Dependency {
    name: String,
    version: String,
    repository: String,
}

impl Dependency {
    /// Whether it is in the folder `charts/`, unpacked or as `<name>-<version>.tgz`.
    fn is_in(&self, charts: &Path) -> bool {
        let prefix = format!("{}-", self.name);
        let is_it = |file: &str| {
            let version = file.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".tgz"));
            version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit() || first == 'v'))
        };
        let packed = || std::fs::read_dir(charts).into_iter().flatten().flatten().any(|entry| is_it(&entry.file_name().to_string_lossy()));
        charts.join(&self.name).join("Chart.yaml").is_file() || packed()
    }

    /// Its folder, if its repository is one.
    fn folder(&self, chart: &Path) -> Option<PathBuf> {
        Some(chart.join(self.repository.strip_prefix("file://")?))
    }
}

/// The archive of a chart's folder.
///
/// # Errors
/// The folder cannot be read, a chart that it needs can neither be found nor fetched, or charts need each other in a circle.
pub fn pack(chart: &Path) -> Result<Vec<u8>> {
    pack_below(chart, &[])
}

/// As [`pack`], for a chart that is needed by those in `above`.
fn pack_below(chart: &Path, above: &[PathBuf]) -> Result<Vec<u8>> {
    let (beside, fetched): (Vec<_>, Vec<_>) =
        missing(chart)?.into_iter().map(|needed| (needed.folder(chart), needed)).partition(|(folder, _)| folder.is_some());
    let top = chart.canonicalize()?;
    ensure!(!above.contains(&top), "the chart in {} needs itself, directly or through charts that it needs", top.display());
    let above = [above, std::slice::from_ref(&top)].concat();
    let top = top.file_name().map_or_else(|| PathBuf::from("chart"), PathBuf::from);
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    archive.append_dir_all(&top, chart).with_context(|| format!("cannot pack {}", chart.display()))?;
    for (folder, needed) in beside {
        let folder = folder.unwrap_or_default();
        let inner = pack_below(&folder, &above)
            .with_context(|| format!("the chart {} is needed and should be in {}", needed.name, folder.display()))?;
        append(&mut archive, &top, &format!("{}-{}.tgz", needed.name, versioned(&needed.version)), &inner)?;
    }
    if !fetched.is_empty() {
        let needed: Vec<Dependency> = fetched.into_iter().map(|(_, needed)| needed).collect();
        for (name, content) in fetch(chart, &needed)? {
            append(&mut archive, &top, &name, &content)?;
        }
    }
    Ok(archive.into_inner()?.finish()?)
}

/// A version that may be part of the name of an archive: `*` and ranges may not.
fn versioned(version: &str) -> &str {
    if version.starts_with(|first: char| first.is_ascii_digit()) && !version.contains(char::is_whitespace) { version } else { "0.0.0" }
}

fn append(archive: &mut tar::Builder<GzEncoder<Vec<u8>>>, top: &Path, name: &str, content: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    Ok(archive.append_data(&mut header, top.join("charts").join(name), content)?)
}

/// The dependencies that the chart names and that are not in its folder `charts/`, with the versions to which its lock pins them.
fn missing(chart: &Path) -> Result<Vec<Dependency>> {
    let charts = chart.join("charts");
    let mut missing = Vec::new();
    for (file, lock) in FILES {
        let pinned = read(&chart.join(lock))?;
        for needed in listed(&read(&chart.join(file))?) {
            let lock = listed(&pinned).into_iter().find(|pinned| pinned.name == needed.name);
            let version = lock.map_or_else(|| needed.version.clone(), |pinned| pinned.version);
            missing.push(Dependency { version, ..needed });
        }
    }
    missing.retain(|needed| !needed.is_in(&charts));
    Ok(missing)
}

fn listed(file: &Value) -> Vec<Dependency> {
    let items = file["dependencies"].as_array().into_iter().flatten();
    let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
    let named =
        items.map(|item| Dependency { name: text(item, "name"), version: text(item, "version"), repository: text(item, "repository") });
    named.filter(|needed| !needed.name.is_empty()).collect()
}

/// A YAML file; null if it does not exist.
fn read(file: &Path) -> Result<Value> {
    match std::fs::read_to_string(file) {
        Ok(text) => yaml::one(&text, Limits::MANIFESTS).with_context(|| format!("cannot read {}", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Fetches charts with helm. Returns the archives by name.
fn fetch(chart: &Path, needed: &[Dependency]) -> Result<Vec<(String, Vec<u8>)>> {
    let names = || needed.iter().map(|one| format!("{} ({})", one.name, one.repository)).collect::<Vec<_>>().join(", ");
    let folder = tempfile::tempdir().context("no temporary folder for the charts that are needed")?;
    let dependencies: Vec<Value> =
        needed.iter().map(|one| json!({"name": one.name, "version": one.version, "repository": one.repository})).collect();
    let only = json!({"apiVersion": "v2", "name": "dependencies", "version": "0.0.0", "dependencies": dependencies});
    std::fs::write(folder.path().join("Chart.yaml"), only.to_string())?;
    let helm = helm();
    let output = Command::new(&helm).args(["dependency", "update"]).arg(folder.path()).output();
    let next = || format!("`helm dependency update {}` puts them there", chart.display());
    let output = output.with_context(|| {
        format!("the chart needs {}, which its folder charts/ does not have, and {} cannot be started to fetch them; {}, or DROVER_HELM may name helm", names(), helm.display(), next())
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "the chart needs {}, which its folder charts/ does not have, and helm cannot fetch them: {}\n  next: {}",
        names(),
        said.trim().trim_start_matches("Error: "),
        next()
    );
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder.path().join("charts")).context("helm fetched no charts")? {
        let entry = entry?;
        found.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flate2::read::GzDecoder;

    use super::*;

    fn write(file: PathBuf, text: &str) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn files(archive: &[u8]) -> BTreeSet<String> {
        let mut archive = tar::Archive::new(GzDecoder::new(archive));
        let entries = archive.entries().unwrap().map(Result::unwrap).filter(|entry| entry.header().entry_type().is_file());
        entries.map(|entry| entry.path().unwrap().display().to_string()).collect()
    }

    #[test]
    fn charts_beside_the_folder_are_packed_along_and_those_that_are_there_are_not_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let named = "dependencies: [{name: cache, version: 1.x, repository: 'file://../cache'}, {name: db, version: 2, repository: 'https://127.0.0.1:1/x'}]";
        write(at("shop/Chart.yaml"), &format!("apiVersion: v2\nname: shop\nversion: 1.0.0\n{named}\n"));
        write(at("shop/charts/db-2.1.0.tgz"), "packed");
        write(at("shop/charts/db-tools-1.0.0.tgz"), "another one");
        write(at("cache/Chart.yaml"), "apiVersion: v2\nname: cache\nversion: 1.4.2\n");
        let packed = files(&pack(&at("shop")).unwrap());
        let expected = ["shop/Chart.yaml", "shop/charts/cache-1.x.tgz", "shop/charts/db-2.1.0.tgz", "shop/charts/db-tools-1.0.0.tgz"];
        assert_eq!(packed, expected.map(str::to_owned).into());

        std::fs::remove_dir_all(at("cache")).unwrap();
        let refused = format!("{:#}", pack(&at("shop")).unwrap_err());
        assert!(refused.contains("the chart cache is needed and should be in"), "{refused}");
    }

    #[test]
    fn charts_that_need_each_other_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (name, needed) in [("a", "b"), ("b", "a")] {
            let dependencies = format!("dependencies: [{{name: {needed}, version: 1.0.0, repository: 'file://../{needed}'}}]");
            write(folder.path().join(name).join("Chart.yaml"), &format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n{dependencies}\n"));
        }
        let refused = format!("{:#}", pack(&folder.path().join("a")).unwrap_err());
        assert!(refused.contains("needs itself"), "{refused}");
    }

    #[test]
    fn dependencies_of_charts_for_helm_2_and_pinned_versions_are_known() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path().join("Chart.yaml"), "name: shop\nversion: 1.0.0\n");
        write(folder.path().join("requirements.yaml"), "dependencies:\n- {name: db, version: '>1', repository: '@stable'}\n");
        write(folder.path().join("requirements.lock"), "dependencies:\n- {name: db, version: 1.9.3, repository: '@stable'}\n");
        let missing = missing(folder.path()).unwrap();
        assert_eq!(missing.iter().map(|one| (one.name.as_str(), one.version.as_str())).collect::<Vec<_>>(), [("db", "1.9.3")]);
    }
}
