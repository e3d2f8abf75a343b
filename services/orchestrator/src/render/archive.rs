//! Reads uploaded tar.gz archives into memory. They are not trusted: links, absolute paths, paths with `..` and archives above the
//! size limits are refused. Only [`Archive::unpack`] writes to disk, to paths that have been checked.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path};

use flate2::read::MultiGzDecoder;

/// Maximum number of bytes an archive may unpack to.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of files in an archive.
const MAX_FILES: usize = 4096;

/// Why an archive was refused.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is not a tar.gz, or incomplete.
    #[error("not a tar.gz: {0}")]
    Unreadable(#[from] std::io::Error),
    /// A path points outside the archive.
    #[error("the path {0:?} leaves the archive")]
    Path(String),
    /// An entry is a link or a device.
    #[error("{0:?} is neither a file nor a directory")]
    Kind(String),
    /// It exceeds the limit of bytes or files.
    #[error("it unpacks to more than {} MiB or {MAX_FILES} files", MAX_BYTES >> 20)]
    TooLarge,
    /// It has no files.
    #[error("it has no files")]
    Empty,
}

/// The files of an archive by path.
#[derive(Debug, Clone, Default)]
pub struct Archive {
    files: BTreeMap<String, Vec<u8>>,
}

/// Whether the bytes begin with the magic number of gzip.
pub fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

impl Archive {
    /// Reads a tar.gz.
    ///
    /// # Errors
    /// The archive is not a tar.gz, is too large, is empty, or has an entry that is refused.
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
            // Metadata files that tar of macOS adds.
            if !path.rsplit('/').next().is_some_and(|name| name.starts_with("._")) {
                files.insert(path, content);
            }
        }
        if files.is_empty() { Err(ArchiveError::Empty) } else { Ok(Self { files }) }
    }

    /// The files, ordered by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, content)| (path.as_str(), content.as_slice()))
    }

    /// The content of the file at this path.
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        self.files.get(&clean(path)?).map(Vec::as_slice)
    }

    /// The directory of the outermost `Chart.yaml` (empty: the root of the archive), if the archive is a chart.
    pub fn chart_root(&self) -> Option<&str> {
        self.files
            .keys()
            .filter_map(|path| path.strip_suffix("Chart.yaml"))
            .filter(|folder| folder.is_empty() || folder.ends_with('/'))
            .min_by_key(|folder| folder.matches('/').count())
            .map(|folder| folder.trim_end_matches('/'))
    }

    /// Writes the files below `folder`.
    ///
    /// # Errors
    /// A file cannot be written.
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

/// The path without `.` parts; none if it is empty or absolute or has `..`.
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
