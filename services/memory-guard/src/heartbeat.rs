//! A heartbeat: a counter in a file that one process increments and another one watches. No clock of the writer is involved, so a wall
//! clock that jumps does not matter, and containers can share the file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The writing side of a heartbeat.
#[derive(Debug)]
pub struct Heartbeat {
    file: File,
    count: u64,
}

impl Heartbeat {
    /// Begins to write, and continues the count of an earlier process, so that the first beat is noticed as a change.
    ///
    /// # Errors
    /// When the file cannot be created or opened.
    pub fn start(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self { count: read(&file).unwrap_or(0), file })
    }

    /// Increments the counter.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn beat(&mut self) -> io::Result<()> {
        self.count = self.count.wrapping_add(1);
        self.file.write_all_at(&self.count.to_le_bytes(), 0)
    }
}

/// The watching side of a heartbeat.
#[derive(Debug)]
pub struct HeartbeatMonitor {
    path: PathBuf,
    last: Option<u64>,
    since: Instant,
    missed: u32,
}

impl HeartbeatMonitor {
    /// Watches the file at `path`, which may not exist yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), last: None, since: Instant::now(), missed: 0 }
    }

    /// How long ago the last beat was seen, or the watching began. Call it more often than the other process beats.
    pub fn silence(&mut self) -> Duration {
        let now = File::open(&self.path).and_then(|file| read(&file)).ok();
        self.missed = self.missed.saturating_add(1);
        if now.is_some() && now != self.last {
            // The first reading may be a counter that a dead process left behind.
            if self.last.is_some() {
                self.since = Instant::now();
                self.missed = 0;
            }
            self.last = now;
        }
        self.since.elapsed()
    }

    /// How many readings in a row have found no beat. On a machine so busy that nobody runs, time passes without readings; a silence then
    /// does not prove that the other process is dead.
    pub fn missed(&self) -> u32 {
        self.missed
    }

    /// Whether a beat was seen within `patience`.
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
    fn monitor_counts_readings_without_a_beat_and_a_beat_resets_the_count() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("pulse");
        let mut pulse = HeartbeatMonitor::new(&path);
        pulse.silence();
        let mut beat = Heartbeat::start(&path)?;
        beat.beat()?;
        pulse.silence();
        assert_eq!(pulse.missed(), 2, "the first counter may have been left behind by a dead process");
        beat.beat()?;
        pulse.silence();
        assert_eq!(pulse.missed(), 0);
        pulse.silence();
        pulse.silence();
        assert_eq!(pulse.missed(), 2);
        Ok(())
    }
}
