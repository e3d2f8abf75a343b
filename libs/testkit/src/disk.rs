//! A disk of a test's own that can be filled. It is memory, and mounting it is root's.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A small disk; dropping it takes it away with all that is on it.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// A disk of so many MiB, or none where this process may not mount one: that is said past the capture of test output.
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
        // Nobody to tell is no failure.
        let _ = writeln!(std::io::stderr().lock(), "SKIPPED, proves nothing: only root, in a container that may, can mount a small disk");
        None
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A place beside it, on the machine's own disk, that goes with it.
    pub fn beside(&self) -> PathBuf {
        self.path.with_extension("beside")
    }

    /// Writes until there is no room for another page.
    ///
    /// # Panics
    /// It cannot be written at all.
    pub fn fill(&self) {
        let mut file = File::create(self.filler()).expect("the disk can be written");
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    /// Gives back what [`SmallDisk::fill`] took.
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
        // Whoever still has a file open keeps it; nobody finds it any more.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
        let _ = std::fs::remove_dir(&self.path);
        let _ = std::fs::remove_dir_all(self.beside());
    }
}
