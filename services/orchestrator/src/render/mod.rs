//! Renders uploads into the objects that are applied: charts with helm, manifests as they are.
//!
//! This happens once, at `approve` or `update`; workflows only carry digests and do not need helm. The result depends only on the
//! input, so equal input gives the same bundle, which is stored once.

pub mod archive;
mod bundle;
mod helm;
pub mod manifests;
pub mod prefer;
mod profile;

use async_trait::async_trait;
use serde_json::Value;

pub use archive::{Archive, ArchiveError};
pub use bundle::Rendered;
pub use helm::Helm;
pub use profile::Profile;

/// An app to be rendered.
#[derive(Debug, Clone, Default)]
pub struct AppSource {
    /// Name of the app, for messages.
    pub app: String,
    /// The upload: a chart (tar.gz), a bundle of manifests (tar.gz) or YAML text.
    pub file: Vec<u8>,
    /// The archive of its profile.
    pub profile: Option<Vec<u8>>,
    /// Override values (`key.path`, value), applied last.
    pub overrides: Vec<(String, String)>,
    /// Name of the Helm release.
    pub release: String,
    /// For objects that name none.
    pub namespace: String,
}

/// Why an app could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The upload cannot be read.
    #[error("{app}: {source}")]
    Archive { app: String, source: ArchiveError },
    /// A manifest is invalid.
    #[error("{app}: {reason}")]
    Manifest { app: String, reason: String },
    /// Helm refused the chart.
    #[error("{app}: helm: {output}")]
    Helm {
        app: String,
        /// Helm's error output, without secrets.
        output: String,
    },
    /// Helm cannot be run; the chart is not the cause.
    #[error("{app}: {reason}")]
    Unavailable { app: String, reason: String },
}

/// Renders charts; the only part of this module that does I/O.
#[async_trait]
pub trait Renderer: Send + Sync {
    /// Renders a chart to YAML. Fails when helm refuses the chart or cannot be run.
    async fn chart(&self, source: &AppSource, chart: &Archive, profile: &Profile) -> Result<String, RenderError>;
}

/// Renders an app.
///
/// # Errors
/// The upload, the profile or a manifest is invalid, or helm failed.
pub async fn render(renderer: &dyn Renderer, source: &AppSource) -> Result<Rendered, RenderError> {
    let app = || source.app.clone();
    let archive_error = |error| RenderError::Archive { app: source.app.clone(), source: error };
    let manifest_error = |reason: String| RenderError::Manifest { app: source.app.clone(), reason };

    let profile = source.profile.as_deref().map(Profile::read).transpose().map_err(manifest_error)?.unwrap_or_default();
    let objects = if archive::is_gzip(&source.file) {
        let archive = Archive::read(&source.file).map_err(archive_error)?;
        if archive.chart_root().is_some() {
            let text = renderer.chart(source, &archive, &profile).await?;
            let objects = manifests::parse("the chart's output", &text).map_err(manifest_error)?;
            objects.into_iter().filter(helm::runs_at_install).collect()
        } else {
            plain(&archive).map_err(manifest_error)?
        }
    } else {
        let text = std::str::from_utf8(&source.file).map_err(|_| manifest_error("it is neither a tar.gz nor YAML text".into()))?;
        manifests::parse("the file", text).map_err(manifest_error)?
    };
    Rendered::of(objects).map_err(|reason| RenderError::Manifest { app: app(), reason })
}

/// All manifests of an archive, ordered by path.
fn plain(archive: &Archive) -> Result<Vec<Value>, String> {
    let mut objects = Vec::new();
    for (path, content) in archive.files() {
        if [".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end)) {
            let text = std::str::from_utf8(content).map_err(|_| format!("{path} is not UTF-8 text"))?;
            objects.extend(manifests::parse(path, text)?);
        }
    }
    Ok(objects)
}

/// Checks an upload when it arrives. The messages of errors are EMCO's.
///
/// # Errors
/// It is neither a readable tar.gz nor YAML with manifests.
pub fn check_upload(file: &[u8]) -> Result<(), String> {
    if archive::is_gzip(file) {
        return Archive::read(file).map(drop).map_err(|error| format!("Error in file format: {error}"));
    }
    let text = std::str::from_utf8(file).map_err(|_| "Error in file format: neither a tar.gz nor YAML text".to_owned())?;
    let objects = manifests::parse("the file", text).map_err(|reason| format!("Error in file format: {reason}"))?;
    if objects.is_empty() { Err("Error in file format: it is empty".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
