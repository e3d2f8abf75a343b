//! Agents in real clusters: the rights with which Drover brings them there, and whether they work on a real node.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use drover_testkit::{Image, needs};

use crate::program::{json, ok, start, wait};

/// Held by tests that make the account `drover` in the real cluster, of which there is one.
pub(crate) static ACCOUNT: Mutex<()> = Mutex::new(());

#[test]
fn account_for_agents_may_apply_them_and_give_no_other_role_rights() {
    let (Some(real), Some(programs)) = (needs("DROVER_CONTRACT_KUBECONFIG"), needs("DROVER_KUBE_BIN")) else { return };
    let _only = ACCOUNT.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::copy(&real, at("real")).unwrap();
    let kubectl = |kubeconfig: &str, args: &[&str]| {
        let program = Path::new(&programs).join("kubectl");
        let output = Command::new(program).args(["--kubeconfig", kubeconfig]).args(args).output().unwrap();
        (output.status.success(), format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
    };
    let context = kubectl(&at("real"), &["config", "current-context"]).1;
    let account = |more: &[&str], file: &str| {
        let args = ["cluster", "kubeconfig", "--from", context.trim(), "--kubeconfig", &at("real"), "--out", &at(file)];
        ok("http://127.0.0.1:9", &[&args[..], more].concat());
    };
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let apply = |kubeconfig: &str, file: &Path| {
        let file = file.display().to_string();
        kubectl(&at(kubeconfig), &["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", &file])
    };
    let files = [
        "autoscaler/crd.yaml",
        "autoscaler/rbac.yaml",
        "autoscaler/agent.yaml",
        "autoscaler/activator.yaml",
        "memory-guard/rbac.yaml",
        "memory-guard/daemonset.yaml",
    ];

    account(&[], "plain");
    let (done, said) = apply("plain", &deploy.join(files[0]));
    assert!(!done && said.contains("forbidden"), "{said}");

    account(&["--agents"], "agents");
    for file in files {
        let (done, said) = apply("agents", &deploy.join(file));
        assert!(done, "{file}: {said}");
    }
    let other = std::fs::read_to_string(deploy.join("autoscaler/rbac.yaml")).unwrap().replace("name: drover-autoscaler", "name: somebody");
    std::fs::write(at("other.yaml"), other).unwrap();
    let (done, said) = apply("agents", Path::new(&at("other.yaml")));
    assert!(!done && said.contains("attempting to grant RBAC permissions not currently held"), "{said}");
}

/// An image of both agents.
fn image(folder: &Path) -> std::path::PathBuf {
    let programs = ["drover-autoscaler", "drover-memory-guard"];
    let image = Image::new("drover.local/drover:1", "/bin/drover-autoscaler");
    let add = |image: Image, name| image.built(&Path::new(crate::program::DROVER).with_file_name(name), &format!("/bin/{name}"));
    programs.into_iter().fold(image, add).write(folder)
}

fn repository() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs a command that must succeed, and returns its output.
#[track_caller]
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Takes a set of clusters down.
struct Down(std::path::PathBuf);

impl Drop for Down {
    fn drop(&mut self) {
        let _ = Command::new(repository().join("deploy/local-kube/kube.sh")).args(["down", "--dir"]).arg(&self.0).output();
    }
}

#[test]
#[ignore = "long: a control plane with a real kubelet; needs root, cgroup v1 and all programs built"]
fn agents_are_healthy_and_report_on_a_real_node() {
    if needs("DROVER_KUBE_BIN").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let set = folder.path().join("set");
    let down = Down(set.clone());
    let mut kube = Command::new(repository().join("deploy/local-kube/kube.sh"));
    kube.args(["up", "--real", "--names", "real", "--nodes", "1", "--owner", &std::process::id().to_string(), "--dir"]).arg(&set);
    done(kube.env("EXTRA_IMAGES", image(folder.path())));
    let (up, url) = start(folder.path());
    ok(&url, &["cluster", "add", "real", "--provider", "onprem", "--kubeconfig", &at("set/real/kubeconfig")]);
    wait(|| json(&url, &["get", "clusters", "-o", "json"])[0]["ageMs"].is_u64());
    let version = ["--on", "all", "--image", "drover.local/drover", "--version", "1", "--healthy-seconds", "1", "--wait"];
    ok(&url, &[&["agents", "set", "autoscaler"][..], &version].concat());
    ok(&url, &[&["agents", "set", "memory-guard", "--set", "MEMGUARD_MODE=apply"][..], &version].concat());
    let copies = || json(&url, &["get", "agents", "-o", "json"]);
    wait(|| copies().as_array().unwrap().iter().all(|agent| agent["copies"][0]["report"].is_object()));
    let agents = copies();
    let of = |name: &str| agents.as_array().unwrap().iter().find(|agent| agent["name"] == name).unwrap()["copies"][0].clone();
    for name in ["autoscaler", "memory-guard"] {
        assert_eq!(of(name)["state"], "Healthy", "{agents:#}");
    }
    let guard = &of("memory-guard")["report"];
    assert_eq!(guard["nodes"], 1, "{agents:#}");
    assert!(guard["watches"].as_u64().unwrap() >= 4 && guard["memoryPercent"].is_u64(), "it sees the containers of its node: {agents:#}");
    drop((up, down));
}
