//! EMCO's app profile: an archive with `manifest.yaml`, override values and files to be added to the chart.

use drover_manifest::{Limits, yaml};
use serde::Deserialize;

use super::InputError;
use super::archive::{Archive, clean};

/// What a profile adds to a chart.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// Override values as YAML text.
    pub values: Option<String>,
    /// Files that are copied into the chart: path in the chart, content.
    pub files: Vec<(String, Vec<u8>)>,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "type")]
    kind: ManifestType,
}

#[derive(Deserialize)]
struct ManifestType {
    #[serde(default)]
    values: String,
    #[serde(default)]
    configresource: Vec<ConfigResource>,
}

#[derive(Deserialize)]
struct ConfigResource {
    filepath: String,
    chartpath: String,
}

impl Profile {
    /// Reads the archive of a profile.
    ///
    /// # Errors
    /// The archive cannot be read, or `manifest.yaml` is missing, invalid or names a file that is missing.
    pub fn read(bytes: &[u8]) -> Result<Self, InputError> {
        let archive = Archive::read(bytes).map_err(|error| format!("the profile: {error}"))?;
        let (path, text) = archive
            .files()
            .filter(|(path, _)| path.rsplit('/').next() == Some("manifest.yaml"))
            .min_by_key(|(path, _)| path.matches('/').count())
            .ok_or_else(|| "the profile has no manifest.yaml".to_owned())?;
        let folder = path.strip_suffix("manifest.yaml").unwrap_or_default();
        let text = std::str::from_utf8(text).map_err(|_| "the profile's manifest.yaml is not UTF-8 text".to_owned())?;
        let manifest: Manifest =
            yaml::typed(text, Limits::MANIFESTS).map_err(|error| InputError::of_yaml("the profile's manifest.yaml", &error))?;
        let file = |name: &str| {
            archive.file(&format!("{folder}{name}")).ok_or_else(|| format!("the profile's manifest.yaml names {name}, which is not there"))
        };

        let values = match manifest.kind.values.as_str() {
            "" => None,
            name => {
                let text = std::str::from_utf8(file(name)?).map_err(|_| format!("{name} is not UTF-8 text"))?;
                yaml::one(text, Limits::MANIFESTS).map_err(|error| InputError::of_yaml(name, &error))?;
                Some(text.to_owned())
            }
        };
        let mut files = Vec::new();
        for resource in manifest.kind.configresource {
            let target = clean(&resource.chartpath).ok_or_else(|| format!("the path {:?} leaves the chart", resource.chartpath))?;
            files.push((target, file(&resource.filepath)?.to_vec()));
        }
        Ok(Self { values, files })
    }
}
