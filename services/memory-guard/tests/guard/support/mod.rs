//! Helpers that the tests share in addition to `drover_lab_node`: what the machine must have, waiting for a condition, a machine of plain
//! files, a cluster with a real kubelet.

pub mod machine;
pub mod node;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use drover_lab_node::{Start, Version, lacking};

pub use drover_lab_node::{PATIENCE, SWITCH};

/// Held by tests that load the whole machine and compare results, so that they run one after the other.
pub static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const PROGRAM: &str = env!("CARGO_BIN_EXE_drover-memory-guard");

/// Path of the agent's program.
pub fn program() -> &'static Path {
    Path::new(PROGRAM)
}

/// How the agent is started, with its files in `state`.
pub fn guard<'a>(state: &'a Path, runtime: &'a Path) -> Start<'a> {
    Start::new(program(), state, runtime)
}

/// Whether the machine lacks something that a real containerd needs. This is printed past the capture of test output. Root, for whom
/// `make test` installs everything, may not skip a test.
pub fn missing(test: &str) -> bool {
    let lacks = lacking();
    if lacks.is_empty() {
        return false;
    }
    let skipped = format!("SKIPPED, proves nothing: {test} lacks {} (as root: deploy/setup.sh real)", lacks.join("; "));
    assert!(!(nix::unistd::geteuid().is_root() && std::env::var_os("DROVER_NO_SKIPS").is_some()), "{skipped}");
    say(&skipped);
    true
}

/// containerd 2, built if necessary, which takes about two minutes with a warm cache of Go modules on an idle machine.
pub fn containerd_two() -> Version {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube/containerd/build.sh");
    let built = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "containerd 2 cannot be built");
    Version::Two(PathBuf::from(String::from_utf8(built.stdout).unwrap().trim()))
}

/// Prints past the capture of test output.
pub fn say(words: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{words}");
}

/// Waits until the condition holds; fails with a description of it if it never does.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
