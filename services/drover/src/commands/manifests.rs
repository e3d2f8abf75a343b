//! Reads the files of `drover deploy -f`: manifests are split into apps, a Helm chart is one app.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::{Compression, write::GzEncoder};

use crate::split;

/// An app ready to be uploaded.
pub struct Upload {
    /// Name.
    pub name: String,
    /// A Helm chart as .tar.gz, or YAML manifests.
    pub file: Vec<u8>,
}

/// Reads `path`, or stdin for `-`. A chart becomes one app called `name`.
///
/// # Errors
/// The path cannot be read, or does not hold Kubernetes objects or a chart.
pub fn read(path: &Path, name: &str) -> Result<Vec<Upload>> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
        return from_text(&text);
    }
    let meta = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if meta.is_dir() && path.join("Chart.yaml").is_file() {
        return Ok(vec![Upload { name: name.to_owned(), file: pack(path)? }]);
    }
    if meta.is_dir() {
        let mut text = String::new();
        for file in yaml_files(path)? {
            text.push_str(&std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?);
            text.push_str("\n---\n");
        }
        if text.is_empty() {
            bail!("{} contains no .yaml, .yml or .json file", path.display());
        }
        return from_text(&text).with_context(|| path.display().to_string());
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(vec![Upload { name: name.to_owned(), file: bytes }]);
    }
    let text = String::from_utf8(bytes).with_context(|| format!("{} is neither text nor a chart archive", path.display()))?;
    from_text(&text).with_context(|| path.display().to_string())
}

/// The apps of YAML manifests.
///
/// # Errors
/// See [`crate::split::SplitError`].
pub fn from_text(text: &str) -> Result<Vec<Upload>> {
    let apps = split::split(split::parse(text)?)?;
    apps.into_iter()
        .map(|app| {
            let documents = app.objects.iter().map(serde_yaml::to_string).collect::<Result<Vec<_>, _>>()?;
            Ok(Upload { name: app.name, file: documents.join("---\n").into_bytes() })
        })
        .collect()
}

fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().and_then(|e| e.to_str()).is_some_and(|e| ["yaml", "yml", "json"].contains(&e)))
        .collect();
    files.sort();
    Ok(files)
}

fn pack(chart: &Path) -> Result<Vec<u8>> {
    let top = chart.canonicalize()?;
    let top = top.file_name().map_or_else(|| "chart".into(), |n| n.to_string_lossy().into_owned());
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    archive.append_dir_all(top, chart).with_context(|| format!("cannot pack {}", chart.display()))?;
    Ok(archive.into_inner()?.finish()?)
}
