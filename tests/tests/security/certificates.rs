//! Services apart, which know each other by certificates.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use drover::hub::is_status;
use drover_e2e::processes::Processes;
use drover_testkit::eventually;
use reqwest::{Certificate, Client, Identity, Method};
use serde_json::{Value, json};

fn certificates(folder: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/docker/certificates.sh");
    let made = Command::new(script).arg(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A client that shows this certificate, or none.
fn client(folder: &Path, identity: Option<(&Path, &str)>) -> Client {
    let read = |path: std::path::PathBuf| std::fs::read(path).unwrap();
    // The names in the certificates are those of the services, not of the address.
    let mut client = Client::builder()
        .tls_danger_accept_invalid_hostnames(true)
        .tls_certs_only([Certificate::from_pem(&read(folder.join("ca.pem"))).unwrap()]);
    if let Some((folder, name)) = identity {
        let pem = [read(folder.join(format!("{name}.pem"))), read(folder.join(format!("{name}.key")))].concat();
        client = client.identity(Identity::from_pem(&pem).unwrap());
    }
    client.build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_serve_each_other_by_certificate_and_refuse_a_wrong_identity() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificates(own.path());
    certificates(other.path());
    let processes = Processes::start_with_certificates(own.path(), &[]).await;

    // A document that lies with the orchestrator, through the gateway.
    let user = processes.client("gateway");
    user.post("/v2/projects", Some(&json!({"metadata": {"name": "shop"}}))).await.unwrap();
    assert!(user.get::<Value>("/v2/projects").await.unwrap().to_string().contains("shop"));
    // Feeds between the services.
    user.post("/v2/cluster-providers", Some(&json!({"metadata": {"name": "onprem"}}))).await.unwrap();
    let clusters: Value = user.get("/v2/clusters?view=capacity").await.unwrap();
    assert_eq!(clusters, json!([]));

    let claims = processes.url("placement").join("internal/claims").unwrap();
    let ask = async |identity: Option<(&Path, &str)>, method: Method| {
        let answer = client(own.path(), identity).request(method, claims.clone()).send().await;
        answer.map_or(0, |answer| answer.status().as_u16())
    };
    assert_eq!(ask(Some((own.path(), "orchestrator")), Method::GET).await, 200);
    assert_eq!(ask(None, Method::GET).await, 401, "nobody");
    assert_eq!(ask(Some((own.path(), "gateway")), Method::GET).await, 403, "the gateway has nothing to do there");
    assert_eq!(ask(Some((own.path(), "migration")), Method::PUT).await, 403, "only the orchestrator writes");
    assert_eq!(ask(Some((other.path(), "orchestrator")), Method::GET).await, 0, "a certificate of another authority ends the handshake");
    // The token that one machine uses is none here.
    let by_token = client(own.path(), None).get(claims.clone()).bearer_auth(drover_e2e::processes::TOKEN).send().await.unwrap();
    assert_eq!(by_token.status(), 401);
    // What speaks without TLS is not answered.
    let plain = reqwest::get(format!("http://127.0.0.1:{}/healthz", claims.port().unwrap())).await;
    assert!(plain.is_err(), "{plain:?}");
    processes.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_behind_a_wrong_certificate_is_not_called() {
    let own = tempfile::tempdir().unwrap();
    certificates(own.path());
    // Whoever has the key of placement answers at the address of the orchestrator.
    for kind in ["pem", "key"] {
        std::fs::copy(own.path().join(format!("placement.{kind}")), own.path().join(format!("orchestrator.{kind}"))).unwrap();
    }
    let mut processes = Processes::launch_with_certificates(own.path(), &[]).await;
    let user = processes.client("gateway");
    let refused = eventually(Duration::from_secs(120), async || {
        let error = user.get::<Value>("/v2/projects").await.err()?;
        is_status(&error, 503).then_some(error)
    })
    .await;
    assert_eq!(drover::hub::code(&refused), Some("peer_unavailable"), "{refused:#}");

    // The right one is used as soon as it is there, without a restart.
    for kind in ["pem", "key"] {
        std::fs::remove_file(own.path().join(format!("orchestrator.{kind}"))).unwrap();
    }
    certificates(own.path());
    eventually(Duration::from_secs(120), async || user.get::<Value>("/v2/projects").await.ok()).await;
    processes.kill("gateway");
    processes.end().await;
}
