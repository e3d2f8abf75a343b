//! Commands that the program `drover-lab` runs: benchmarks, experiments, simulators, the demo. None of their code is in this program.
//!
//! This process replaces itself (`exec`) with `drover-lab` and the same arguments, so signals, exit code and terminal belong to that.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Error, anyhow};
use clap::Args;

const PROGRAM: &str = "drover-lab";

/// Arguments that are passed on to `drover-lab` unparsed, `--help` among them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct LabArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Replaces this process with `drover-lab`: the one in the directory of this program, else the one on PATH. Returns only if that fails.
pub fn exec(command: &str) -> Error {
    let this = std::env::current_exe().unwrap_or_default();
    let beside = this.with_file_name(PROGRAM);
    let program = if beside.is_file() { beside } else { PathBuf::from(PROGRAM) };
    let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        let folder = this.parent().unwrap_or(Path::new("")).display();
        return anyhow!(
            "`drover {command}` needs the program {PROGRAM}, which is neither in {folder} nor on PATH; \
             in a checkout, `cargo build --release -p drover-lab` makes it"
        );
    }
    anyhow!("{} cannot be run: {error}", program.display())
}
