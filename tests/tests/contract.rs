//! Drover keeps what its API document says: every public operation is asked, every kind of document is read back as it was written, and
//! the examples of the document are what was seen here.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use drover_e2e::System;
use tokio::process::Command;

/// It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(600);

fn contract() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/contract"))
}

/// With `DROVER_RECORD=1` it writes the examples anew, from which `cargo run -p xtask -- public` makes those of the document.
#[tokio::test(flavor = "multi_thread")]
async fn every_public_operation_answers_as_the_document_and_its_examples_say() {
    let system = System::unregistered().await;
    let kubeconfigs = tempfile::tempdir().expect("a temporary folder");
    for member in system.members() {
        let file = kubeconfigs.path().join(format!("{}.kubeconfig", member.name));
        std::fs::write(file, &member.kubeconfig).expect("a kubeconfig is written");
    }
    let what = if std::env::var_os("DROVER_RECORD").is_some() { "--record" } else { "--check" };
    let tour = Command::new("python3")
        .arg(contract().join("tour.py"))
        .arg(system.url().as_str().trim_end_matches('/'))
        .arg(kubeconfigs.path())
        .arg(what)
        .arg(contract().join("examples.json"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let tour = tokio::time::timeout(TIMEOUT, tour).await.expect("the tour ends in time").expect("python3 is installed (deploy/setup.sh)");
    let said = format!("{}{}", String::from_utf8_lossy(&tour.stdout), String::from_utf8_lossy(&tour.stderr));
    assert!(tour.status.success(), "{said}");
    assert!(said.contains("read back") && said.contains("the end"), "{said}");
    for member in system.members() {
        assert!(member.deployed().await.is_empty(), "{} still runs something", member.name);
    }
}
