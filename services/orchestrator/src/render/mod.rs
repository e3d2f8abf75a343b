//! From what a user uploaded to the objects that are applied: charts through helm, manifests as they are.
//!
//! It happens once, at `approve` (or `update`); workflows carry digests only and never need helm again. What comes out
//! depends on nothing but what goes in, so that equal input is the same bundle, stored once.

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

/// One app to render.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// App, for messages.
    pub app: String,
    /// What was uploaded: a chart (tar.gz), a bundle of manifests (tar.gz) or YAML text.
    pub file: Vec<u8>,
    /// Its profile's archive.
    pub profile: Option<Vec<u8>>,
    /// Override values (`key.path`, value), applied last.
    pub overrides: Vec<(String, String)>,
    /// Helm release.
    pub release: String,
    /// Namespace of objects that name none.
    pub namespace: String,
}

/// An app that does not render.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The upload cannot be read.
    #[error("{app}: {source}")]
    Archive {
        /// App.
        app: String,
        /// Why.
        source: ArchiveError,
    },
    /// A manifest is none.
    #[error("{app}: {reason}")]
    Manifest {
        /// App.
        app: String,
        /// Why.
        reason: String,
    },
    /// Helm said no; in its own words.
    #[error("{app}: helm: {words}")]
    Helm {
        /// App.
        app: String,
        /// Helm's words without secrets.
        words: String,
    },
    /// Helm cannot be run here; the application has no part in that.
    #[error("{app}: {reason}")]
    Unavailable {
        /// App.
        app: String,
        /// Why.
        reason: String,
    },
}

/// Renders charts. The one thing here that needs the world outside.
#[async_trait]
pub trait Renderer: Send + Sync {
    /// The YAML that the chart makes.
    async fn chart(&self, source: &Source, chart: &Archive, profile: &Profile) -> Result<String, RenderError>;
}

/// What the app's objects are.
pub async fn render(renderer: &dyn Renderer, source: &Source) -> Result<Rendered, RenderError> {
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

/// All manifests of a bundle, file by file in order of their paths.
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

/// Whether an upload can be an app at all; checked when it arrives. EMCO's words where it is not.
pub fn check_upload(file: &[u8]) -> Result<(), String> {
    if archive::is_gzip(file) {
        return Archive::read(file).map(drop).map_err(|error| format!("Error in file format: {error}"));
    }
    let text = std::str::from_utf8(file).map_err(|_| "Error in file format: neither a tar.gz nor YAML text".to_owned())?;
    let objects = manifests::parse("the file", text).map_err(|reason| format!("Error in file format: {reason}"))?;
    if objects.is_empty() { Err("Error in file format: there is nothing in it".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
