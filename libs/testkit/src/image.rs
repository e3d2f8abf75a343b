//! Images for real kubelets, made of programs of this machine without a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An image with a shell (busybox), to be written to an archive.
pub struct Image {
    name: &'static str,
    /// Where each file comes from, by its path in the image.
    files: BTreeMap<PathBuf, PathBuf>,
}

impl Image {
    /// One with nothing but the shell.
    pub fn new(name: &'static str) -> Self {
        Self { name, files: BTreeMap::new() }.file(Path::new("/bin/busybox"))
    }

    /// Adds a file at the path that it has here.
    pub fn file(mut self, path: &Path) -> Self {
        self.files.insert(path.into(), path.into());
        self
    }

    /// Adds all files below a directory.
    pub fn directory(self, path: &Path) -> Self {
        let entries = std::fs::read_dir(path).expect("the directory can be read").map(|entry| entry.expect("its entries too").path());
        entries.fold(self, |image, entry| if entry.is_dir() { image.directory(&entry) } else { image.file(&entry) })
    }

    /// Adds a program, or a library that programs load, with what it is linked with.
    pub fn program(mut self, from: &Path, at: &Path) -> Self {
        let linked = output(Command::new("ldd").arg(from));
        self.files.insert(at.into(), from.into());
        linked.split_whitespace().filter(|word| word.starts_with('/')).fold(self, |image, library| image.file(Path::new(library)))
    }

    /// Writes the archive, as `docker save` would, and returns its path.
    pub fn write(self, folder: &Path) -> PathBuf {
        let archive = folder.join("image.tar");
        let writer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/local-kube/images/mkimage.py");
        let mut command = Command::new("python3");
        command.arg(writer).arg(&archive).args([self.name, "/bin/sh"]);
        command.args(["sh", "rm"].iter().flat_map(|link| ["--link".to_owned(), format!("busybox=/bin/{link}")]));
        command.args(self.files.iter().map(|(at, from)| format!("{}={}", from.display(), at.display())));
        output(&mut command);
        archive
    }
}

/// What a command prints, which must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().expect("the program is there");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
