//! Renders uploads into the objects that are applied: charts with helm, manifests as they are.
//!
//! This happens once, at `approve` or `update`; workflows only carry digests and do not need helm. The result depends only on the
//! input, so equal input gives the same bundle, which is stored once.

pub mod archive;
mod bundle;
mod helm;
mod input;
mod known_apis;
pub mod prefer;
mod profile;
mod sandbox;

use async_trait::async_trait;
use drover_manifest::objects;

pub use archive::{Archive, ArchiveError};
pub use bundle::{Rendered, digest_of_app, is_per_member, sent_digest};
pub use helm::Helm;
use input::Input;
pub use input::{InputError, check_profile, check_upload};
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
    /// The upload, its profile or what it renders to exceeds the limits of reading.
    #[error("{app}: {reason}")]
    TooComplex { app: String, reason: String },
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

    /// The notes that a chart shows to those who install it. Fails as [`Renderer::chart`] does.
    async fn notes(&self, _: &AppSource, _: &Archive, _: &Profile) -> Result<Option<String>, RenderError> {
        Ok(None)
    }
}

/// The notes of an app; `None` if it is no chart or its chart has none.
///
/// # Errors
/// The upload or the profile is invalid, or helm failed.
pub async fn notes(renderer: &dyn Renderer, source: &AppSource) -> Result<Option<String>, RenderError> {
    let owned = source.clone();
    match blocking(source, move || Input::read(&owned)).await? {
        Input::Manifests(_) => Ok(None),
        Input::Chart(chart, profile) => renderer.notes(source, &chart, &profile).await,
    }
}

/// Renders an app. Archives and YAML are read on a thread for blocking work.
///
/// # Errors
/// The upload, the profile or a manifest is invalid, or helm failed.
pub async fn render(renderer: &dyn Renderer, source: &AppSource) -> Result<Rendered, RenderError> {
    let owned = source.clone();
    let text = match blocking(source, move || Input::read(&owned)).await? {
        Input::Manifests(manifests) => {
            let namespace = source.namespace.clone();
            return blocking(source, move || input::settled(manifests, &namespace)).await;
        }
        Input::Chart(chart, profile) => renderer.chart(source, &chart, &profile).await?,
    };
    let namespace = source.namespace.clone();
    blocking(source, move || {
        let mut manifests = objects::read("the chart's output", &text).map_err(InputError::from)?;
        manifests.retain_mut(|manifest| helm::is_run(&mut manifest.value));
        input::settled(manifests, &namespace)
    })
    .await
}

/// Runs work that takes long without yielding.
async fn blocking<T: Send + 'static>(
    source: &AppSource,
    work: impl FnOnce() -> Result<T, InputError> + Send + 'static,
) -> Result<T, RenderError> {
    let app = || source.app.clone();
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(InputError::Archive(source))) => Err(RenderError::Archive { app: app(), source }),
        Ok(Err(InputError::Invalid(reason))) => Err(RenderError::Manifest { app: app(), reason }),
        Ok(Err(InputError::TooComplex(reason))) => Err(RenderError::TooComplex { app: app(), reason }),
        Err(panic) => Err(RenderError::Unavailable { app: app(), reason: format!("reading it failed: {panic}") }),
    }
}

#[cfg(test)]
mod tests;
