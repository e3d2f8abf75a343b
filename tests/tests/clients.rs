//! The clients in clients/ are generated, built, and tell their story to a running Drover; and Drover answers as its document says.

mod clients {
    pub mod contract;
}

use std::process::Stdio;
use std::time::Duration;

use drover_e2e::System;
use serde_json::json;
use tokio::process::Command;

/// It only guards against hanging; packages may have to be downloaded and compiled.
const TIMEOUT: Duration = Duration::from_secs(1800);

fn url(system: &System) -> &str {
    system.url().as_str().trim_end_matches('/')
}

/// A folder with the kubeconfigs of the members.
fn kubeconfigs(system: &System) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for member in system.members() {
        std::fs::write(folder.path().join(format!("{}.kubeconfig", member.name)), &member.kubeconfig).expect("a kubeconfig is written");
    }
    folder
}

/// Asserts that an example has told the story to its end.
async fn told(system: &System, example: &std::process::Output) {
    let said = format!("{}{}", String::from_utf8_lossy(&example.stdout), String::from_utf8_lossy(&example.stderr));
    assert!(example.status.success(), "{said}");
    assert!(said.contains("the newcomer made room") && said.contains("private-b is drained"), "{said}");
    for member in system.members() {
        assert!(member.deployed().await.is_empty(), "{} still runs something", member.name);
    }
}

/// Makes the client of a language and runs its example.
async fn tells_the_story(language: &str) {
    let system = System::unregistered().await;
    let kubeconfigs = kubeconfigs(&system);
    let made = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/make.sh"))
        .args(["--run", language])
        .env("DROVER_URL", url(&system))
        .env("DROVER_KUBECONFIGS", kubeconfigs.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let made = tokio::time::timeout(TIMEOUT, made).await.expect("the client is made and run in time").expect("it runs");
    told(&system, &made).await;
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

/// The example is built with the tests; the package is made and read by cargo, which compiles what is in it.
#[tokio::test(flavor = "multi_thread")]
async fn rust_client_tells_the_story() {
    let system = System::unregistered().await;
    let kubeconfigs = kubeconfigs(&system);
    let programs = std::env::current_exe().expect("the path of this program");
    let story = programs.ancestors().nth(2).expect("it is in <target>/<profile>/deps").join("examples/story");
    let run = Command::new(story).env("DROVER_URL", url(&system)).env("DROVER_KUBECONFIGS", kubeconfigs.path()).kill_on_drop(true).output();
    let run = tokio::time::timeout(TIMEOUT, run).await.expect("the story ends in time").expect("`cargo test` builds the examples");
    told(&system, &run).await;
}

#[tokio::test]
async fn rust_package_is_made_and_has_all_that_it_needs() {
    let made = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/make.sh")).arg("rust").stdin(Stdio::null()).output();
    let made = made.await.expect("it runs");
    assert!(made.status.success(), "{}{}", String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
}

/// Runs schemathesis, with this token if there is one.
async fn keeps_its_contract(system: &System, token: Option<&str>) {
    let mut run = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/contract/run.sh"));
    run.arg(url(system))
        .env_remove("DROVER_TOKEN")
        .envs(token.map(|token| ("DROVER_TOKEN", token)))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    // Two such runs at once took longer than that on two busy processors.
    let run = tokio::time::timeout(2 * TIMEOUT, run.output()).await.expect("schemathesis ends in time").expect("it runs");
    assert!(run.status.success(), "{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: tens of thousands of requests"]
async fn public_operations_keep_their_contract() {
    keeps_its_contract(&System::unregistered().await, None).await;
}

/// Where tokens are asked for: one with every right, and one of a project, which is refused at most operations.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: tens of thousands of requests"]
async fn public_operations_keep_their_contract_with_a_token_and_none_is_open_without() {
    let many = ["--requests-per-second=1000000", "--request-burst=1000000"].map(|flag| ("gateway", flag.to_owned()));
    let system = System::guarded_at(([127, 0, 0, 1], 0).into(), &many).await;
    system.client.post("/v2/projects", Some(&json!({"metadata": {"name": "shop"}}))).await.expect("a project");
    for order in [json!({"name": "all", "role": "admin"}), json!({"name": "some", "role": "deployer", "projects": ["shop"]})] {
        let made = system.client.post("/v2/tokens", Some(&order)).await.expect("a token");
        keeps_its_contract(&system, made.body["token"].as_str()).await;
    }
}
