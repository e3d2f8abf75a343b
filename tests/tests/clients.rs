//! The clients in clients/ are generated, built, and tell their story to a running Drover; and Drover answers as its document says.

use std::process::Stdio;
use std::time::Duration;

use drover_e2e::System;
use tokio::process::Command;

/// It only guards against hanging; packages may have to be downloaded.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Makes the client of a language and runs its example.
async fn tells_the_story(language: &str) {
    let system = System::unregistered().await;
    let kubeconfigs = tempfile::tempdir().expect("a temporary folder");
    for member in system.members() {
        std::fs::write(kubeconfigs.path().join(format!("{}.kubeconfig", member.name)), &member.kubeconfig)
            .expect("a kubeconfig is written");
    }
    let made = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/make.sh"))
        .args(["--run", language])
        .env("DROVER_URL", system.url().as_str().trim_end_matches('/'))
        .env("DROVER_KUBECONFIGS", kubeconfigs.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let made = tokio::time::timeout(TIMEOUT, made).await.expect("the client is made and run in time").expect("it runs");
    let said = format!("{}{}", String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    assert!(made.status.success(), "{said}");
    assert!(said.contains("the newcomer made room") && said.contains("private-b is drained"), "{said}");
    for member in system.members() {
        assert!(member.deployed().await.is_empty(), "{} still runs something", member.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_client_tells_the_story() {
    tells_the_story("python").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_client_tells_the_story() {
    tells_the_story("typescript").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn go_client_tells_the_story() {
    tells_the_story("go").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: tens of thousands of requests"]
async fn public_operations_keep_their_contract() {
    let system = System::unregistered().await;
    let url = system.url().as_str().trim_end_matches('/').to_owned();
    let run =
        Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/contract/run.sh")).arg(url).stdin(Stdio::null()).kill_on_drop(true).output();
    let run = tokio::time::timeout(3 * TIMEOUT, run).await.expect("schemathesis ends in time").expect("it runs");
    assert!(run.status.success(), "{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
}
