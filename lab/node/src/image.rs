//! Builds the image of the workload, so that nothing has to be pulled.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Name of the image. Its entry point is the workload.
pub const IMAGE: &str = "localhost/workload:1";
const SOURCE: &str = include_str!("workload.c");
const ARCHIVER: &str = include_str!("../../../deploy/local-kube/images/mkimage.py");

/// Writes an archive with the image into this directory and returns its path.
///
/// # Errors
/// When the workload cannot be compiled, or the archive cannot be written.
pub fn image(dir: &Path) -> Result<PathBuf> {
    let [source, program, script, image] = ["workload.c", "workload", "mkimage.py", "image.tar"].map(|name| dir.join(name));
    std::fs::write(&source, SOURCE)?;
    std::fs::write(&script, ARCHIVER)?;
    run("cc", [OsStr::new("-O2"), OsStr::new("-static"), OsStr::new("-o"), program.as_os_str(), source.as_os_str()])?;
    let file = format!("{}=/workload", program.display());
    run("python3", [script.as_os_str(), image.as_os_str(), OsStr::new(IMAGE), OsStr::new("/workload"), OsStr::new(&file)])?;
    Ok(image)
}

/// Runs a program from `PATH` or from the directories of root's programs.
pub(super) fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<()> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(arguments).env("PATH", path).output().with_context(|| format!("{program} cannot be run"))?;
    ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
