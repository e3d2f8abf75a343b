//! The journal: what the guard has done to the node and not yet undone, written to disk before it is done.
//!
//! An append-only file of JSON lines. `begin` is written and synced **before** a hold, `end` after its release. `end` needs no sync,
//! because releasing twice does no harm. A torn last line belongs to a hold that never began. Any process that reads the file (the agent
//! when it starts, the dead man's switch at any time) knows every container that may be held, and enough to release it without asking
//! another process.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use drover_memguard::Moment;
use serde::{Deserialize, Serialize};

use crate::cgroup::{CpuQuota, Freezer};
use crate::clock;

/// Number of lines after which the file is rewritten with only the open entries.
const COMPACT_AFTER: usize = 4096;

/// One hold of a container, with the state that the release restores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "by")]
pub enum Hold {
    /// Frozen by writing the freezer file.
    Freeze {
        freezer: Freezer,
    },
    Pause {
        /// The freezer that containerd uses, if its file is accessible.
        freezer: Option<Freezer>,
    },
    /// Slowed by a tiny CPU quota, set through CRI.
    Quota {
        /// Directory with the CPU files of the cgroup.
        dir: PathBuf,
        before: CpuQuota,
        /// The quota that the guard sets.
        ours: CpuQuota,
    },
    High {
        file: PathBuf,
        before: String,
    },
}

impl Hold {
    /// The kind of the hold. A container has at most one hold of each kind.
    pub fn kind(&self) -> HoldKind {
        match self {
            Self::Freeze { .. } | Self::Pause { .. } => HoldKind::Freeze,
            Self::Quota { .. } => HoldKind::Quota,
            Self::High { .. } => HoldKind::High,
        }
    }
}

/// The kinds of holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldKind {
    Freeze,
    Quota,
    High,
}

/// An entry of the journal: which container is held, how, since when and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    pub container: String,
    /// `namespace/pod/container`.
    pub name: String,
    pub hold: Hold,
    pub since: Moment,
    /// The container is released at this moment at the latest.
    pub until: Moment,
    /// The container is held at the start gate.
    #[serde(default)]
    pub at_gate: bool,
}

/// Container id and kind of hold: what identifies an entry.
pub type HoldKey = (String, HoldKind);

impl JournalEntry {
    /// The key of the entry.
    pub fn key(&self) -> HoldKey {
        (self.container.clone(), self.hold.kind())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "line")]
enum Line {
    Boot { id: String },
    Begin(JournalEntry),
    End { container: String, kind: HoldKind },
}

/// The journal of this agent, its only writer.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    open: BTreeMap<HoldKey, JournalEntry>,
    lines: usize,
}

/// Reads the open entries of a journal: what is, or may be, held. A journal of another boot has none, because a reboot releases
/// everything.
///
/// # Errors
/// When the file exists and cannot be read.
pub fn read(path: &Path) -> io::Result<BTreeMap<HoldKey, JournalEntry>> {
    let text = match std::fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(e) => return Err(e),
    };
    let mut open = BTreeMap::new();
    let mut this_boot = false;
    for line in text.lines() {
        match serde_json::from_str(line) {
            Ok(Line::Boot { id }) => {
                this_boot = id == clock::boot_id();
                open.clear();
            }
            Ok(Line::Begin(entry)) => {
                open.insert(entry.key(), entry);
            }
            Ok(Line::End { container, kind }) => {
                open.remove(&(container, kind));
            }
            // The last line may be torn. A damaged line further up must not hide the others.
            Err(error) => tracing::warn!(%error, "a line of the journal cannot be read and is skipped"),
        }
    }
    Ok(if this_boot { open } else { BTreeMap::new() })
}

impl Journal {
    /// Opens the journal or creates it. The entries that [`Journal::open_entries`] then returns are left over from an agent that died.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(path: &Path) -> io::Result<Self> {
        let open = read(path)?;
        let file = write_anew(path, &open)?;
        Ok(Self { path: path.to_owned(), file, lines: open.len() + 1, open })
    }

    /// The entries that were begun and not ended.
    pub fn open_entries(&self) -> &BTreeMap<HoldKey, JournalEntry> {
        &self.open
    }

    /// Records what is about to be done, and returns when the record is on disk.
    ///
    /// # Errors
    /// When the record could not be made durable. The caller must not act then.
    pub fn begin(&mut self, entries: &[JournalEntry]) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        if self.lines > COMPACT_AFTER {
            self.file = write_anew(&self.path, &self.open)?;
            self.lines = self.open.len() + 1;
        }
        let mut bytes = Vec::new();
        for entry in entries {
            push(&mut bytes, &Line::Begin(entry.clone()))?;
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.lines += entries.len();
        self.open.extend(entries.iter().map(|entry| (entry.key(), entry.clone())));
        Ok(())
    }

    /// Records that a hold was released.
    ///
    /// # Errors
    /// When the file cannot be written, for example because the disk is full. The next reader of the journal then releases the hold once
    /// more, which does no harm.
    pub fn end(&mut self, key: &HoldKey) -> io::Result<()> {
        if self.open.remove(key).is_none() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        push(&mut bytes, &Line::End { container: key.0.clone(), kind: key.1 })?;
        self.lines += 1;
        self.file.write_all(&bytes)
    }
}

fn push(bytes: &mut Vec<u8>, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *bytes, line)?;
    bytes.push(b'\n');
    Ok(())
}

/// Replaces the file by one that holds only the given entries.
fn write_anew(path: &Path, open: &BTreeMap<HoldKey, JournalEntry>) -> io::Result<File> {
    let mut bytes = Vec::new();
    push(&mut bytes, &Line::Boot { id: clock::boot_id() })?;
    for entry in open.values() {
        push(&mut bytes, &Line::Begin(entry.clone()))?;
    }
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    OpenOptions::new().append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Tried = Result<(), Box<dyn std::error::Error>>;

    fn entry(container: &str) -> JournalEntry {
        let hold = Hold::Freeze { freezer: Freezer::V2("/sys/fs/cgroup/x".into()) };
        JournalEntry { container: container.into(), name: "a/b/c".into(), hold, since: Moment(1), until: Moment(2), at_gate: false }
    }

    #[test]
    fn open_returns_entries_that_were_begun_and_not_ended() -> Tried {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("journal");
        let mut journal = Journal::open(&path)?;
        journal.begin(&[entry("a"), entry("b")])?;
        journal.end(&entry("a").key())?;
        drop(journal);
        let next = Journal::open(&path)?;
        assert_eq!(next.open_entries().values().cloned().collect::<Vec<_>>(), [entry("b")]);
        assert_eq!(read(&path)?.len(), 1, "read returns the same entries");
        Ok(())
    }

    #[test]
    fn read_skips_a_torn_last_line_and_keeps_the_others() -> Tried {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("journal");
        Journal::open(&path)?.begin(&[entry("a"), entry("b")])?;
        let whole = std::fs::read(&path)?;
        std::fs::write(&path, &whole[..whole.len() - 5])?;
        assert_eq!(read(&path)?.keys().map(|key| key.0.as_str()).collect::<Vec<_>>(), ["a"]);
        Ok(())
    }

    #[test]
    fn read_returns_nothing_after_a_reboot() -> Tried {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("journal");
        Journal::open(&path)?.begin(&[entry("a")])?;
        let other = std::fs::read_to_string(&path)?.replace(&clock::boot_id(), "another-boot");
        std::fs::write(&path, other)?;
        assert!(read(&path)?.is_empty());
        Ok(())
    }

    #[test]
    fn begin_compacts_the_file_after_many_lines() -> Tried {
        // In memory, because of thousands of syncs.
        let dir = tempfile::tempdir_in("/dev/shm")?;
        let path = dir.path().join("journal");
        let mut journal = Journal::open(&path)?;
        for _ in 0..COMPACT_AFTER {
            journal.begin(&[entry("a")])?;
            journal.end(&entry("a").key())?;
        }
        journal.begin(&[entry("b")])?;
        assert!(std::fs::read_to_string(&path)?.lines().count() <= COMPACT_AFTER + 2);
        assert_eq!(read(&path)?.len(), 1);
        Ok(())
    }
}
