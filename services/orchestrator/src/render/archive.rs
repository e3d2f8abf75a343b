//! Uploaded tar.gz archives, read into memory within limits and never trusted: no links, no absolute or climbing paths,
//! no bombs. Nothing is written to disk here except by [`Archive::unpack`], whose paths have been checked.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path};

use flate2::read::MultiGzDecoder;

/// The most bytes an archive may unpack to.
const MAX_BYTES: u64 = 64 << 20;
/// The most files an archive may hold.
const MAX_FILES: usize = 4096;

/// An archive that is not read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Not a tar.gz, or cut off.
    #[error("not a tar.gz: {0}")]
    Unreadable(#[from] std::io::Error),
    /// A path that leaves the archive.
    #[error("the path {0:?} leaves the archive")]
    Path(String),
    /// A link or device.
    #[error("{0:?} is neither a file nor a directory")]
    Kind(String),
    /// Too much.
    #[error("it unpacks to more than {} MiB or {MAX_FILES} files", MAX_BYTES >> 20)]
    TooLarge,
    /// Nothing.
    #[error("it holds no files")]
    Empty,
}

/// The files of an archive by path.
#[derive(Debug, Clone, Default)]
pub struct Archive {
    files: BTreeMap<String, Vec<u8>>,
}

/// Whether the bytes begin as gzip does.
pub fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

impl Archive {
    /// Reads a tar.gz.
    pub fn read(bytes: &[u8]) -> Result<Self, ArchiveError> {
        let mut tar = tar::Archive::new(MultiGzDecoder::new(bytes).take(MAX_BYTES + 1));
        let (mut files, mut total) = (BTreeMap::new(), 0_u64);
        for entry in tar.entries()? {
            let mut entry = entry.map_err(|error| if total >= MAX_BYTES { ArchiveError::TooLarge } else { error.into() })?;
            let shown = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let kind = entry.header().entry_type();
            if kind.is_dir() || matches!(kind, tar::EntryType::XGlobalHeader | tar::EntryType::XHeader) {
                continue;
            }
            if !kind.is_file() {
                return Err(ArchiveError::Kind(shown));
            }
            total = total.saturating_add(entry.header().size()?);
            if total > MAX_BYTES || files.len() >= MAX_FILES {
                return Err(ArchiveError::TooLarge);
            }
            let path = clean(&shown).ok_or(ArchiveError::Path(shown))?;
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            // macOS' tar adds these; they are no manifests.
            if !path.rsplit('/').next().is_some_and(|name| name.starts_with("._")) {
                files.insert(path, content);
            }
        }
        if files.is_empty() { Err(ArchiveError::Empty) } else { Ok(Self { files }) }
    }

    /// Its files, in order of their paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, content)| (path.as_str(), content.as_slice()))
    }

    /// One file.
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        self.files.get(&clean(path)?).map(Vec::as_slice)
    }

    /// The folder of the outermost `Chart.yaml` (empty: the archive itself), if it is a chart.
    pub fn chart_root(&self) -> Option<&str> {
        self.files
            .keys()
            .filter_map(|path| path.strip_suffix("Chart.yaml"))
            .filter(|folder| folder.is_empty() || folder.ends_with('/'))
            .min_by_key(|folder| folder.matches('/').count())
            .map(|folder| folder.trim_end_matches('/'))
    }

    /// Writes its files below `folder`.
    pub fn unpack(&self, folder: &Path) -> std::io::Result<()> {
        for (path, content) in &self.files {
            let target = folder.join(path);
            if let Some(parent) = target.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(target, content)?;
        }
        Ok(())
    }
}

/// The path without `.`; none if it is absolute, climbs or is empty.
pub(super) fn clean(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str().filter(|part| !part.contains(['\\', '\0']))?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    if parts.is_empty() { None } else { Some(parts.join("/")) }
}
