//! Images for real kubelets, made of programs of this machine without a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An image, to be written to an archive.
pub struct Image {
    name: &'static str,
    entry: &'static str,
    links: Vec<&'static str>,
    /// Where each file comes from, by its path in the image.
    files: BTreeMap<PathBuf, PathBuf>,
    /// Programs of this build by their path in the image: written without debug information.
    built: BTreeMap<PathBuf, PathBuf>,
}

impl Image {
    /// An empty one with this name and this program as its entry point.
    pub fn new(name: &'static str, entry: &'static str) -> Self {
        Self { name, entry, links: Vec::new(), files: BTreeMap::new(), built: BTreeMap::new() }
    }

    /// Adds a shell (busybox).
    pub fn shell(mut self) -> Self {
        self.links.extend(["busybox=/bin/sh", "busybox=/bin/rm"]);
        self.file(Path::new("/bin/busybox"))
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

    /// Adds a program that is installed here, or a library that programs load, with what it is linked with.
    pub fn program(self, path: &Path) -> Self {
        self.libraries(path).file(path)
    }

    /// Adds a program of this build, with what it is linked with.
    pub fn built(mut self, program: &Path, at: &str) -> Self {
        self.built.insert(at.into(), program.into());
        self.libraries(program)
    }

    fn libraries(self, program: &Path) -> Self {
        let linked = output(Command::new("ldd").arg(program));
        linked.split_whitespace().filter(|word| word.starts_with('/')).fold(self, |image, library| image.file(Path::new(library)))
    }

    /// Writes the archive into this directory, as `docker save` would, and returns its path.
    pub fn write(mut self, folder: &Path) -> PathBuf {
        for (at, program) in self.built {
            let stripped = folder.join(at.file_name().expect("a program has a name"));
            output(Command::new("strip").arg("-o").arg(&stripped).arg(program));
            self.files.insert(at, stripped);
        }
        let archive = folder.join("image.tar");
        let writer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube/images/mkimage.py");
        let mut command = Command::new("python3");
        command.arg(writer).arg(&archive).args([self.name, self.entry]).args(self.links.iter().flat_map(|link| ["--link", link]));
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
