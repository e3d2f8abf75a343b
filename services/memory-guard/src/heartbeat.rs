//! A sign of life: a counter in a file that one process raises and another one watches. No clock of the writer is involved, so a
//! wall clock that jumps means nothing, and the file can be shared between containers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The one that lives.
#[derive(Debug)]
pub struct Heartbeat {
    file: File,
    count: u64,
}

impl Heartbeat {
    /// Begins; goes on from whatever was counted before, so that the first beat is seen as a change.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn start(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self { count: read(&file).unwrap_or(0), file })
    }

    /// One beat.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn beat(&mut self) -> io::Result<()> {
        self.count = self.count.wrapping_add(1);
        self.file.write_all_at(&self.count.to_le_bytes(), 0)
    }
}

/// The one that watches.
#[derive(Debug)]
pub struct Pulse {
    path: PathBuf,
    last: Option<u64>,
    since: Instant,
    missed: u32,
}

impl Pulse {
    /// Watches the file at `path`, which need not be there yet. What it does not see beat within its patience counts as dead.
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), last: None, since: Instant::now(), missed: 0 }
    }

    /// How long ago the last beat was seen (or the watching began). Call it more often than the other one beats.
    pub fn silence(&mut self) -> Duration {
        let now = File::open(&self.path).and_then(|file| read(&file)).ok();
        self.missed = self.missed.saturating_add(1);
        if now.is_some() && now != self.last {
            // The first look cannot tell a beat from what a dead one left behind.
            if self.last.is_some() {
                self.since = Instant::now();
                self.missed = 0;
            }
            self.last = now;
        }
        self.since.elapsed()
    }

    /// How many looks in a row have seen no beat. On a machine that starves everybody, time passes and nobody looks: then the silence of
    /// the other one says nothing yet.
    pub fn missed(&self) -> u32 {
        self.missed
    }

    /// Whether a beat was ever seen, and not too long ago.
    pub fn alive(&mut self, patience: Duration) -> bool {
        self.silence() <= patience && self.last.is_some()
    }
}

fn read(file: &File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_without_a_beat_are_counted_and_a_beat_ends_them() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("pulse");
        let mut pulse = Pulse::of(&path);
        pulse.silence();
        let mut beat = Heartbeat::start(&path)?;
        beat.beat()?;
        pulse.silence();
        assert_eq!(pulse.missed(), 2, "what is found at first may have been left behind by a dead one");
        beat.beat()?;
        pulse.silence();
        assert_eq!(pulse.missed(), 0);
        pulse.silence();
        pulse.silence();
        assert_eq!(pulse.missed(), 2);
        Ok(())
    }
}
