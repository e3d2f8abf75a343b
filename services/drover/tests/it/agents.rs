//! The rights with which Drover brings its agents into a real cluster.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use drover_testkit::needs;

use crate::cli::ok;

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
