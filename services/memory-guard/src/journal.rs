//! What the guard has done to the node and not yet taken back, on disk before it is done.
//!
//! An append-only file of JSON lines. `begin` is written and synced **before** the act, `end` after it was taken back; `end` needs no sync,
//! because taking back twice does no harm. A torn last line is an act that never began. Whoever reads the file (the agent when it starts,
//! the dead man's switch at any time) knows everything that might be held, and enough to let it go without asking anybody.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use drover_memguard::Moment;
use serde::{Deserialize, Serialize};

use crate::cgroup::{CpuQuota, Freezer};
use crate::clock;

/// Lines after which the file is written anew with only what is open.
const COMPACT_AFTER: usize = 4096;

/// One thing that was done to a container, and how it was before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "by")]
pub enum Hold {
    /// Frozen by the file.
    Freeze {
        /// Which.
        freezer: Freezer,
    },
    /// Frozen through containerd.
    Pause {
        /// The freezer that containerd uses, if it can be reached.
        freezer: Option<Freezer>,
    },
    /// A tiny CPU quota through CRI.
    Quota {
        /// Directory with the CPU files.
        dir: PathBuf,
        /// As it was.
        before: CpuQuota,
        /// As it is made.
        ours: CpuQuota,
    },
    /// `memory.high`.
    High {
        /// The file.
        file: PathBuf,
        /// Its content before.
        before: String,
    },
}

impl Hold {
    /// A container is held once in each of these ways.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Freeze { .. } | Self::Pause { .. } => Kind::Freeze,
            Self::Quota { .. } => Kind::Quota,
            Self::High { .. } => Kind::High,
        }
    }
}

/// The ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Freezer.
    Freeze,
    /// CPU quota.
    Quota,
    /// `memory.high`.
    High,
}

/// An entry: who is held, how, since when and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Container id.
    pub container: String,
    /// `namespace/pod/container`, for people.
    pub name: String,
    /// How.
    pub hold: Hold,
    /// Since.
    pub since: Moment,
    /// At the latest until.
    pub until: Moment,
    /// Held at the start gate.
    #[serde(default)]
    pub at_gate: bool,
}

/// Who, in which way.
pub type Key = (String, Kind);

impl Entry {
    /// Its key.
    pub fn key(&self) -> Key {
        (self.container.clone(), self.hold.kind())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "line")]
enum Line {
    Boot { id: String },
    Begin(Entry),
    End { container: String, kind: Kind },
}

/// The journal of this agent. One writer.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    open: BTreeMap<Key, Entry>,
    lines: usize,
}

/// What a journal says is (or may be) held. Of another boot: nothing, since the machine forgot it.
///
/// # Errors
/// The file is there and cannot be read.
pub fn read(path: &Path) -> io::Result<BTreeMap<Key, Entry>> {
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
            // The last line may be torn; a damaged one further up must not hide the others.
            Err(error) => tracing::warn!(%error, "a line of the journal cannot be read and is passed over"),
        }
    }
    Ok(if this_boot { open } else { BTreeMap::new() })
}

impl Journal {
    /// Opens it, or makes it. What [`Journal::open_entries`] says then is left over from an agent that died.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn open(path: &Path) -> io::Result<Self> {
        let open = read(path)?;
        let file = write_anew(path, &open)?;
        Ok(Self { path: path.to_owned(), file, lines: open.len() + 1, open })
    }

    /// What is held.
    pub fn open_entries(&self) -> &BTreeMap<Key, Entry> {
        &self.open
    }

    /// Notes what is about to be done, and returns when that is on the disk.
    ///
    /// # Errors
    /// It could not be made durable: do not act.
    pub fn begin(&mut self, entries: &[Entry]) -> io::Result<()> {
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

    /// Notes that it was taken back.
    ///
    /// # Errors
    /// The disk is full, say. It is taken back once more by whoever reads the journal next, which does no harm.
    pub fn end(&mut self, key: &Key) -> io::Result<()> {
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

/// A whole new file under the old name.
fn write_anew(path: &Path, open: &BTreeMap<Key, Entry>) -> io::Result<File> {
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

    fn entry(container: &str) -> Entry {
        let hold = Hold::Freeze { freezer: Freezer::V2("/sys/fs/cgroup/x".into()) };
        Entry { container: container.into(), name: "a/b/c".into(), hold, since: Moment(1), until: Moment(2), at_gate: false }
    }

    #[test]
    fn what_was_begun_and_not_ended_is_open_for_the_next_one() -> Tried {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("journal");
        let mut journal = Journal::open(&path)?;
        journal.begin(&[entry("a"), entry("b")])?;
        journal.end(&entry("a").key())?;
        drop(journal);
        let next = Journal::open(&path)?;
        assert_eq!(next.open_entries().values().cloned().collect::<Vec<_>>(), [entry("b")]);
        assert_eq!(read(&path)?.len(), 1, "whoever only reads sees the same");
        Ok(())
    }

    #[test]
    fn a_torn_last_line_never_began_and_hides_nothing() -> Tried {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("journal");
        Journal::open(&path)?.begin(&[entry("a"), entry("b")])?;
        let whole = std::fs::read(&path)?;
        std::fs::write(&path, &whole[..whole.len() - 5])?;
        assert_eq!(read(&path)?.keys().map(|key| key.0.as_str()).collect::<Vec<_>>(), ["a"]);
        Ok(())
    }

    #[test]
    fn after_a_reboot_nothing_is_held() -> Tried {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("journal");
        Journal::open(&path)?.begin(&[entry("a")])?;
        let other = std::fs::read_to_string(&path)?.replace(&clock::boot_id(), "another-boot");
        std::fs::write(&path, other)?;
        assert!(read(&path)?.is_empty());
        Ok(())
    }

    #[test]
    fn it_does_not_grow_for_ever() -> Tried {
        // In memory: thousands of syncs.
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
