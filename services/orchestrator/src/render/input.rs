//! Reads uploads: what they are, and the objects in them. Takes up to a second of CPU time, so it runs on threads for blocking work.

use drover_manifest::{Manifest, ManifestError, YamlError, objects};
use drover_members::serving;
use drover_resources::Invalid;
use drover_service::codes;
use serde_json::Value;

use super::archive::{self, Archive, ArchiveError};
use super::sandbox::foreign_reference;
use super::{AppSource, Profile, Rendered};

/// Why an upload was refused.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It is an archive that cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// It does not hold what it should.
    #[error("{0}")]
    Invalid(String),
    /// It expands to more than is read.
    #[error("{0}")]
    TooComplex(String),
}

impl InputError {
    /// Of a text that is not about objects.
    pub fn of_yaml(file: &str, error: &YamlError) -> Self {
        let reason = format!("{file}: {error}");
        if error.is_too_complex() { Self::TooComplex(reason) } else { Self::Invalid(reason) }
    }

    /// The answer to an upload. The message begins like EMCO's.
    fn refusal(&self) -> Invalid {
        let code = if matches!(self, Self::TooComplex(_)) { codes::TOO_COMPLEX } else { codes::MALFORMED_UPLOAD };
        Invalid::with(code, format!("Error in file format: {self}"))
    }
}

impl From<String> for InputError {
    fn from(reason: String) -> Self {
        Self::Invalid(reason)
    }
}

impl From<ManifestError> for InputError {
    fn from(error: ManifestError) -> Self {
        if error.is_too_complex() { Self::TooComplex(error.to_string()) } else { Self::Invalid(error.to_string()) }
    }
}

/// An upload that has been read.
pub enum Input {
    /// Plain manifests.
    Manifests(Vec<Manifest>),
    /// A chart to be rendered by helm.
    Chart(Archive, Profile),
}

impl Input {
    /// Reads the upload of an app, and its profile.
    ///
    /// # Errors
    /// The upload or the profile is invalid.
    pub fn read(source: &AppSource) -> Result<Self, InputError> {
        let profile = source.profile.as_deref().map(Profile::read).transpose()?.unwrap_or_default();
        if !archive::is_gzip(&source.file) {
            return Ok(Self::Manifests(text(&source.file)?));
        }
        let archive = Archive::read(&source.file)?;
        match archive.chart_root() {
            Some(_) => {
                let profiled = profile.files.iter().map(|(path, content)| (path.as_str(), content.as_slice()));
                if let Some(reference) = foreign_reference(archive.files().chain(profiled)) {
                    let reason = "the schema of the values refers to something outside of its file, which is not fetched";
                    return Err(format!("{reason}: {reference}").into());
                }
                Ok(Self::Chart(archive, profile))
            }
            None => Ok(Self::Manifests(plain(&archive)?)),
        }
    }
}

fn text(file: &[u8]) -> Result<Vec<Manifest>, InputError> {
    let text = std::str::from_utf8(file).map_err(|_| "it is neither a tar.gz nor YAML text".to_owned())?;
    Ok(objects::read("the file", text)?)
}

/// All manifests of an archive, ordered by path.
fn plain(archive: &Archive) -> Result<Vec<Manifest>, InputError> {
    let mut manifests = Vec::new();
    for (path, content) in archive.files() {
        if [".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end)) {
            let text = std::str::from_utf8(content).map_err(|_| format!("{path} is not UTF-8 text"))?;
            manifests.extend(objects::read(path, text)?);
        }
    }
    Ok(manifests)
}

/// The bundle of these manifests. `namespace` is that of objects that name none.
///
/// # Errors
/// Two manifests describe one object differently, or there are none.
pub fn settled(manifests: Vec<Manifest>, namespace: &str) -> Result<Rendered, InputError> {
    let settled = objects::settle(manifests, namespace)?;
    for manifest in &settled {
        let named = |pointer: &str| manifest.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        serving::check(&manifest.value).map_err(|reason| format!("{}/{}: {reason}", named("/kind"), named("/metadata/name")))?;
    }
    Ok(Rendered::of(settled.into_iter().map(|manifest| manifest.value).collect())?)
}

/// Checks an upload when it arrives. The messages of errors are EMCO's.
///
/// # Errors
/// It is neither a readable tar.gz nor YAML with manifests.
pub fn check_upload(file: &[u8]) -> Result<(), Invalid> {
    if archive::is_gzip(file) {
        return Archive::read(file).map(drop).map_err(|error| InputError::from(error).refusal());
    }
    match text(file) {
        Ok(manifests) if manifests.is_empty() => Err(InputError::Invalid("it is empty".to_owned()).refusal()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.refusal()),
    }
}

/// Checks the archive of a profile when it arrives.
///
/// # Errors
/// It is not a profile.
pub fn check_profile(file: &[u8]) -> Result<(), Invalid> {
    Profile::read(file).map(drop).map_err(|error| error.refusal())
}
