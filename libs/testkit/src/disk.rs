//! A small disk for a test that fills it. It is in memory (tmpfs), and only root can mount it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A small disk. Dropping it removes it with everything on it.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// A disk of so many MiB; `None`, with a message that is printed even when test output is captured, where this process may not mount one.
    ///
    /// # Panics
    /// The temporary folder cannot be written.
    pub fn mount(mib: u32) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("drover-test-disk-{}", uuid::Uuid::now_v7().simple()));
        std::fs::create_dir(&path).expect("the temporary folder is writable");
        let size = format!("size={mib}m,mode=0755");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "drover-test"]).arg(&path).stderr(Stdio::null()).status();
        if mounted.is_ok_and(|mounted| mounted.success()) {
            return Some(Self { path });
        }
        let _ = std::fs::remove_dir(&path);
        // The message is only a hint, so an error does not matter.
        let _ = writeln!(std::io::stderr().lock(), "SKIPPED, proves nothing: only root, in a container that may, can mount a small disk");
        None
    }

    /// The directory where the disk is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path on the machine's own disk that is removed together with this disk.
    pub fn beside(&self) -> PathBuf {
        self.path.with_extension("beside")
    }

    /// Fills the disk until there is no room for another page.
    ///
    /// # Panics
    /// No file can be created on it.
    pub fn fill(&self) {
        let mut file = File::create(self.filler()).expect("the disk can be written");
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    /// Frees the space that [`SmallDisk::fill`] took.
    ///
    /// # Panics
    /// It was not filled.
    pub fn make_room(&self) {
        std::fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy: processes that still have files open keep them, and the mount is gone for all others.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
        let _ = std::fs::remove_dir(&self.path);
        let _ = std::fs::remove_dir_all(self.beside());
    }
}
