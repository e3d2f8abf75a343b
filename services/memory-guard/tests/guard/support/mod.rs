//! What the tests share, beside the lab that the crate has itself: what the machine must offer, files that wait, a machine of plain files,
//! a cluster with a real kubelet.

pub mod node;
pub mod world;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use drover_lab_node::{Start, Version, lacking};

pub use drover_lab_node::PATIENCE;

/// Held by who starves everybody beside it and compares: one after the other.
pub static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The agent.
const PROGRAM: &str = env!("CARGO_BIN_EXE_drover-memory-guard");

/// The agent that is tested.
pub fn program() -> &'static Path {
    Path::new(PROGRAM)
}

/// How it is started, with its files in `state`.
pub fn guard<'a>(state: &'a Path, runtime: &'a Path) -> Start<'a> {
    Start::new(program(), state, runtime)
}

/// Whether the machine lacks something for a real containerd. That is said past the capture of test output; root, for whom `make test`
/// installs everything, may leave nothing out.
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

/// containerd 2, built if need be; with a warm cache of Go modules that takes about two minutes on idle cores.
pub fn containerd_two() -> Version {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube/containerd/build.sh");
    let built = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "containerd 2 cannot be built");
    Version::Two(PathBuf::from(String::from_utf8(built.stdout).unwrap().trim()))
}

/// Says something past the capture of test output.
pub fn say(words: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{words}");
}

/// Waits until it holds, and says what was waited for if it never does.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
