//! Drover keeps what its API document says: every public operation is asked, every kind of document is read back as it was written, and
//! the examples of the document are what was seen here.

pub mod faults;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use drover_e2e::System;
use serde_json::Value;
use tokio::process::Command;

use faults::recorded;

/// It only guards against hanging: the tour sends over a thousand requests and waits for many operations.
const TIMEOUT: Duration = Duration::from_secs(1500);

fn folder() -> PathBuf {
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
    // The tour goes on until it finds this file.
    let faults = kubeconfigs.path().join("faults.json");
    let output = kubeconfigs.path().join("output");
    let said = || std::fs::read_to_string(&output).expect("the tour's output is read");
    let tour = async {
        let written = std::fs::File::create(&output).expect("the folder is ours");
        let tour = Command::new("python3")
            .arg(folder().join("tour.py"))
            .arg(system.url().as_str().trim_end_matches('/'))
            .arg(kubeconfigs.path())
            .arg(what)
            .arg(folder().join("examples.json"))
            .arg("--faults")
            .arg(&faults)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::null())
            .stderr(written.try_clone().expect("a file"))
            .stdout(written)
            .kill_on_drop(true)
            .status();
        let status = tour.await.expect("python3 is installed (deploy/setup.sh)");
        let said = said();
        assert!(status.success(), "{said}");
        assert!(said.contains("read back") && said.contains("the end"), "{said}");
    };
    let broken = async {
        let recorded = Value::Object(recorded().await).to_string();
        let written = faults.with_extension("new");
        std::fs::write(&written, recorded).and_then(|()| std::fs::rename(&written, &faults)).expect("the folder is ours");
    };
    let both = tokio::time::timeout(TIMEOUT, async { tokio::join!(tour, broken) }).await;
    assert!(both.is_ok(), "the tour has not ended; it has said: {}", said());
    for member in system.members() {
        assert!(member.deployed().await.is_empty(), "{} still runs something", member.name);
    }
}
