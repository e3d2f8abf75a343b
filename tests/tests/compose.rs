//! docker-compose.yml really runs: deploy/docker/try.sh under a container engine of its own, deploy/docker/engine.sh.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// It only guards against hanging. The images that the stack is built on are made once, from packages.
const TIMEOUT: Duration = Duration::from_secs(2400);

/// Whether this machine can run containers: the engine's networks need root, and its packages are installed for root only.
fn can_run_containers() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    eprintln!("SKIPPED, proves nothing: {}: docker-compose.yml is tried as root only, because podman's networks need root", file!());
    false
}

#[tokio::test]
async fn compose_file_runs_with_three_clusters_and_survives_kills_and_restarts() {
    let Some((helm, kube)) = drover_testkit::needs("DROVER_HELM").zip(drover_testkit::needs("DROVER_KUBE_BIN")) else { return };
    if !can_run_containers() {
        return;
    }
    let docker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/docker");
    let programs = std::env::current_exe().expect("the path of this program");
    let programs = programs.parent().and_then(Path::parent).expect("it is in <target>/<profile>/deps").to_owned();
    let run = Command::new(docker.join("engine.sh"))
        .arg(docker.join("try.sh"))
        .args([programs.as_os_str(), &helm])
        .env("DROVER_KUBE_BIN", kube)
        .stdin(Stdio::null())
        .output();
    let run = tokio::time::timeout(TIMEOUT, run).await.expect("it ends in time").expect("it runs");
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}");
    for checked in [
        "ok: docker-compose up",
        "ok: secrets",
        "ok: only the gateway",
        "ok: three control planes",
        "ok: the newcomer made room",
        "ok: orchestrator was killed",
        "ok: down and up",
        "was drained, and both apps were deleted",
    ] {
        assert!(said.contains(checked), "not checked: {checked}: {said}");
    }
}
