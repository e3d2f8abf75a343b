//! The table on disk, from which a process starts when nobody else answers.
//!
//! Written to a new file that replaces the old one, so that a reader finds one or the other whole.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::failpoint::reached;
use crate::table::Table;

/// Where the table is stored.
#[derive(Clone, Debug)]
pub struct Disk {
    file: PathBuf,
}

impl Disk {
    /// Uses this directory, which is made if it does not exist.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(dir: &Path) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Ok(Self { file: dir.join("table.json") })
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The stored table; an empty one if there is none that can be read.
    pub fn read(&self) -> Table {
        match std::fs::read(&self.file) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::error!(file = %self.file.display(), %error, "the stored table of routes cannot be read; starting without it");
                Table::default()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Table::default(),
            Err(error) => {
                tracing::error!(file = %self.file.display(), %error, "the stored table of routes cannot be read; starting without it");
                Table::default()
            }
        }
    }

    /// Stores the present table, and returns it. One writer at a time, which reads the table when its turn comes: an older table never
    /// replaces a newer one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, present: impl FnOnce() -> Table) -> io::Result<Table> {
        static WRITER: Mutex<()> = Mutex::new(());
        let _writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        let table = present();
        reached("traffic/store/before");
        let new = self.file.with_extension(format!("{}.new", std::process::id()));
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&table)?)?;
        file.sync_all()?;
        reached("traffic/store/written");
        std::fs::rename(&new, &self.file)?;
        reached("traffic/store/after");
        Ok(table)
    }
}
