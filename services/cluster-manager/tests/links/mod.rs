//! Clusters that Drover cannot reach: invitations, acceptance, certificates, revocation, and what goes through a link.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_link::keys;
use drover_link::wire::PROTOCOL;
use drover_link_agent::Config as AgentConfig;
use drover_link_agent::drill::{Drill, POINTS};
use drover_scheduling::MemberState;
use drover_testkit::{ChaosProxy, eventually, free_port};
use reqwest::Method;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::stack::{Stack, named};

mod interrupted;

const LINK: &str = "/v2/cluster-providers/p/clusters/a/link";
const SOON: Duration = Duration::from_secs(120);
const CONNECT: &str = "GET /v1/link HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: drover-link\r\n\r\n";

/// A Drover that accepts no cluster of this machine, and the linked cluster a.
struct Linked {
    stack: Stack,
    /// Between the agent and the listener.
    way: ChaosProxy,
    folder: TempDir,
}

/// An agent that ends with the value.
struct Agent(JoinHandle<anyhow::Result<()>>);

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Linked {
    async fn start() -> Self {
        Self::with_certificates_of(24 * 3600).await
    }

    async fn with_certificates_of(seconds: u64) -> Self {
        // The next process is to listen on the same address.
        let at = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
        let stack = Stack::with(|config, common| {
            (config.link_listen, config.link_certificate_seconds) = (Some(at), seconds);
            common.local_clusters = false;
        })
        .await;
        stack.post("/v2/cluster-providers", named("p")).await.is(201);
        let file = stack.sim.kubeconfig("a", &stack.sim_url);
        stack.upload(Method::POST, "/v2/cluster-providers/p/clusters", "a", &file).await.refused(422, "kubeconfig_refused");
        let document = json!({"metadata": {"name": "a"}, "spec": {"link": true}, "file": base64(&file)});
        assert_eq!(stack.post("/v2/cluster-providers/p/clusters", document).await.is(201)["spec"]["link"], true);
        Self { stack, way: ChaosProxy::start(at).await, folder: tempfile::tempdir().unwrap() }
    }

    async fn invite(&self) -> Value {
        self.stack.post(&format!("{LINK}/invitation"), json!({})).await.is(201)
    }

    fn file(&self, name: &str, invitation: &Value) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.json"));
        std::fs::write(&path, invitation.to_string()).unwrap();
        path
    }

    fn state(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn agent(&self, state: &str, invitation: Option<&Path>) -> Agent {
        self.drilled(state, invitation, Drill::default())
    }

    /// An agent that does what the drill says.
    fn drilled(&self, state: &str, invitation: Option<&Path>, drill: Drill) -> Agent {
        let api_server = self.stack.sim_url.strip_prefix("http://").unwrap().to_owned();
        let config = AgentConfig {
            invitation: invitation.map(Path::to_owned),
            state: self.state(state),
            api_server: Some(api_server),
            hub: Some(self.way.address().to_string()),
            drill,
        };
        Agent(tokio::spawn(drover_link_agent::run(config)))
    }

    /// An agent that an operator has accepted and that is connected.
    async fn joined(&self) -> Agent {
        let agent = self.agent("state", Some(&self.file("invitation", &self.invite().await)));
        self.accept().await;
        self.is_ready().await;
        agent
    }

    async fn waiting(&self) -> String {
        let asking = async || {
            let link = self.link().await;
            (link["phase"] == "waiting").then(|| link["fingerprint"].as_str().unwrap().to_owned())
        };
        eventually(SOON, asking).await
    }

    async fn accept(&self) {
        let fingerprint = self.waiting().await;
        self.stack.put(&format!("{LINK}/acceptance"), json!({"fingerprint": fingerprint})).await.is(200);
    }

    async fn link(&self) -> Value {
        self.stack.get(LINK).await.is(200)
    }

    async fn is_ready(&self) {
        self.stack.member("p+a", |member| member.state == MemberState::Ready).await;
    }

    async fn is_unreachable(&self) {
        let told = |reason: &str| reason.contains("agent is not connected");
        let lost =
            self.stack.member("p+a", |member| member.state == MemberState::Unreachable && member.reason.as_deref().is_some_and(told));
        lost.await;
    }

    /// The status with which the listener answers a request of somebody with this identity (a key and its certificate).
    async fn answer(&self, authority: &str, identity: Option<&str>, request: &str) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let config = match identity.map(str::as_bytes) {
            None => config.with_no_client_auth(),
            Some(pem) => {
                let chain = vec![CertificateDer::from_pem_slice(pem).unwrap()];
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(pem).unwrap()).unwrap()
            }
        };
        let tcp = TcpStream::connect(self.way.address()).await.unwrap();
        let name = ServerName::try_from(drover_link::wire::HUB).unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        std::str::from_utf8(&head).unwrap().strip_prefix("HTTP/1.1 ").unwrap().to_owned()
    }

    fn peer(&self) -> drover_service::Peer {
        self.stack.direct()
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[tokio::test]
async fn cluster_behind_nat_is_reached_through_its_agent_once_an_operator_accepts_it() {
    let linked = Linked::start().await;
    assert_eq!(linked.link().await, json!({"phase": "notInvited", "connected": false}));
    let invitation = linked.invite().await;
    assert_eq!(invitation["cluster"], "p+a");
    assert_eq!(linked.link().await["phase"], "invited");
    linked.is_unreachable().await;

    let _agent = linked.agent("state", Some(&linked.file("invitation", &invitation)));
    let fingerprint = linked.waiting().await;
    assert_eq!(linked.link().await["phase"], "waiting");
    assert!(linked.peer().stream("/internal/links/p%2Ba", PROTOCOL).await.is_err(), "who waits is not connected");
    let acceptance = format!("{LINK}/acceptance");
    let other = json!({"fingerprint": keys::fingerprint(&keys::new_key()).unwrap()});
    let refused = linked.stack.put(&acceptance, other).await.refused(409, "wrong_state");
    assert!(refused["detail"].as_str().unwrap().contains(&fingerprint), "{refused}");
    let order = json!({"fingerprint": fingerprint});
    assert_eq!(linked.stack.put(&format!("{acceptance}?dryRun=All"), order.clone()).await.is(200)["phase"], "accepted");
    assert_eq!(linked.link().await["phase"], "waiting", "a dry run accepts nobody");
    linked.stack.put(&acceptance, order.clone()).await.is(200);
    linked.is_ready().await;
    let capacity = linked.stack.capacity("p+a", |capacity| !capacity.nodes.is_empty()).await;
    assert_eq!(capacity.nodes.len(), 2);
    let state = linked.link().await;
    assert_eq!((&state["phase"], &state["connected"]), (&json!("accepted"), &json!(true)), "{state}");
    assert_eq!(linked.stack.put(&acceptance, order).await.is(200)["phase"], "accepted", "it may be repeated");
    let told = |member: &drover_api::members::Member| member.link.as_ref().is_some_and(|link| link.connected_since.is_some());
    let link = linked.stack.member("p+a", told).await.link.unwrap();
    assert_eq!(link.version.as_deref(), state["version"].as_str());
    assert!(link.version.is_some() && link.certificate_expires.is_some(), "{link:?}");
    let metrics = reqwest::Client::new().get(format!("{}/metrics", linked.stack.address())).bearer_auth("peer-token");
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    for shown in ["drover_link_connected{cluster=\"p+a\"} 1", "drover_link_certificate_expires_seconds{cluster=\"p+a\"}"] {
        assert!(metrics.contains(shown), "{shown}: {metrics}");
    }

    let stored: Vec<Value> =
        sqlx::query_scalar("select to_jsonb(t) from (select * from drover_cluster_manager.link, drover_cluster_manager.link_authority) t")
            .fetch_all(&linked.stack.pool)
            .await
            .unwrap();
    let stored = format!("{stored:?}");
    assert!(!stored.contains(invitation["token"].as_str().unwrap()) && !stored.contains("PRIVATE KEY"), "{stored}");
}

#[tokio::test]
async fn invitation_works_for_one_agent_and_for_its_time_only() {
    let linked = Linked::start().await;
    let mut invitation = linked.invite().await;
    let mut wrong = invitation.clone();
    wrong["token"] = "drover-link-guessed".into();
    let ends_with = async |mut agent: Agent, why: &str| {
        let error = tokio::time::timeout(SOON, &mut agent.0).await.expect("it ends").unwrap().unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("invitation_refused"), "{error}");
    };
    ends_with(linked.agent("wrong", Some(&linked.file("wrong", &wrong))), "there is no such invitation").await;

    let expire = "update drover_cluster_manager.link set token_expires_at = now() - interval '1 s'";
    sqlx::query(expire).execute(&linked.stack.pool).await.unwrap();
    ends_with(linked.agent("late", Some(&linked.file("late", &invitation))), "has expired").await;
    assert_eq!(linked.link().await["phase"], "notInvited");

    invitation = linked.invite().await;
    let file = linked.file("invitation", &invitation);
    let first = linked.agent("first", Some(&file));
    let fingerprint = linked.waiting().await;
    ends_with(linked.agent("second", Some(&file)), "another agent has used this invitation").await;
    assert_eq!(linked.waiting().await, fingerprint, "who comes second changes nothing");
    // An agent that is killed while it waits goes on with the same key.
    drop(first);
    let again = linked.agent("first", Some(&file));
    linked.accept().await;
    linked.is_ready().await;
    // Its certificate has arrived, so the token is worth nothing any more, not even with the same key.
    drop(again);
    let path = linked.state("first").join("identity.pem");
    let identity = std::fs::read_to_string(&path).unwrap();
    let (certificate, key) = (identity.find("-----BEGIN CERTIFICATE").unwrap(), linked.state("first").join("next.key"));
    std::fs::write(key, &identity[..certificate]).unwrap();
    std::fs::remove_file(path).unwrap();
    ends_with(linked.agent("first", Some(&file)), "it was used or taken back").await;
}

#[tokio::test]
async fn agent_that_is_revoked_loses_its_connections_at_once_and_gets_no_certificate() {
    let linked = Linked::start().await;
    let invitation = linked.invite().await;
    let authority = invitation["authority"].as_str().unwrap().to_owned();
    let agent = linked.agent("state", Some(&linked.file("invitation", &invitation)));
    linked.accept().await;
    linked.is_ready().await;
    let mut stream = linked.peer().stream("/internal/links/p%2Ba", PROTOCOL).await.unwrap();
    linked.stack.delete(&format!("{LINK}?dryRun=All")).await.is(204);
    stream.write_all(b"GET /version HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(stream.read(&mut [0; 64]).await.unwrap() > 0, "a dry run takes nothing back");

    linked.stack.delete(LINK).await.is(204);
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await.expect("the stream ends");
    linked.is_unreachable().await;
    assert_eq!(linked.link().await, json!({"phase": "revoked", "connected": false}));
    assert!(linked.peer().stream("/internal/links/p%2Ba", PROTOCOL).await.is_err());
    // Nor is it let in with what it has.
    drop(agent);
    let identity = std::fs::read_to_string(linked.state("state").join("identity.pem")).unwrap();
    let renewal = json!({"request": keys::request(&keys::new_key(), "a").unwrap()}).to_string();
    let renewal = format!(
        "POST /v1/renew HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{renewal}",
        renewal.len()
    );
    for request in [CONNECT, &renewal] {
        assert_eq!(linked.answer(&authority, Some(&identity), request).await, "403", "{request}");
    }
    linked.stack.delete(LINK).await.is(204);

    // A new invitation lets an agent in again.
    let _new = linked.agent("state", Some(&linked.file("next", &linked.invite().await)));
    linked.accept().await;
    linked.is_ready().await;
}

#[tokio::test]
async fn certificate_is_renewed_with_a_new_key_while_connections_go_on() {
    let linked = Linked::with_certificates_of(40).await;
    let _agent = linked.joined().await;
    let mut stream = linked.peer().stream("/internal/links/p%2Ba", PROTOCOL).await.unwrap();
    let identity = || std::fs::read_to_string(linked.state("state").join("identity.pem")).unwrap();
    let (first, until) = (identity(), linked.link().await["certificateExpires"].clone());
    eventually(2 * SOON, async || (identity() != first).then_some(())).await;
    let renewed = identity();
    let key = |pem: &str| pem[..pem.find("-----BEGIN CERTIFICATE").unwrap()].to_owned();
    assert_ne!(key(&renewed), key(&first));
    assert_ne!(linked.link().await["certificateExpires"], until);
    let only_the_new_key = async || (linked.stack.count("link where cardinality(keys) = 1").await == 1).then_some(());
    eventually(SOON, only_the_new_key).await;
    stream.write_all(b"GET /version HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(stream.read(&mut [0; 64]).await.unwrap() > 0, "the stream on the first connection goes on");
    // The first connection ends with its certificate, and the second has taken its place.
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await.expect("the first connection ends with its certificate");
    assert!(linked.peer().stream("/internal/links/p%2Ba", PROTOCOL).await.is_ok());
    assert_eq!(linked.link().await["connected"], true);
}

#[tokio::test]
async fn link_that_breaks_and_a_hub_that_is_restarted_are_found_again() {
    let mut linked = Linked::start().await;
    let agent = linked.joined().await;
    let mut stream = linked.peer().stream("/internal/links/p%2Ba", PROTOCOL).await.unwrap();
    linked.way.cut();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await.expect("the stream ends with its link");
    linked.is_unreachable().await;
    linked.way.restore();
    linked.is_ready().await;

    linked.stack.restart().await;
    linked.is_ready().await;
    // The agent, too, may be killed at any time: it comes back with what is on its disk, and needs no invitation.
    drop(agent);
    linked.is_unreachable().await;
    let _agent = linked.agent("state", None);
    linked.is_ready().await;
}

#[tokio::test]
async fn link_of_a_cluster_that_was_removed_leads_nowhere() {
    let linked = Linked::start().await;
    let _agent = linked.joined().await;
    linked.stack.delete("/v2/cluster-providers/p/clusters/a").await.is(204);
    linked.stack.gone("p+a").await;
    let file = linked.stack.sim.kubeconfig("b", &linked.stack.sim_url);
    let document = json!({"metadata": {"name": "a"}, "spec": {"link": true}, "file": base64(&file)});
    linked.stack.post("/v2/cluster-providers/p/clusters", document).await.is(201);
    linked.is_unreachable().await;
    assert!(linked.peer().stream("/internal/links/p%2Ba", PROTOCOL).await.is_err(), "the agent of another cluster of this name");
    assert_eq!(linked.link().await["phase"], "notInvited");
}

#[tokio::test]
async fn how_a_cluster_is_reached_cannot_be_changed() {
    let linked = Linked::start().await;
    let path = "/v2/cluster-providers/p/clusters/a";
    let file = linked.stack.sim.kubeconfig("a", &linked.stack.sim_url);
    for document in [json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "a"}, "file": base64(&file)})] {
        let refused = linked.stack.put(path, document).await.refused(400, "invalid");
        assert!(refused["detail"].as_str().unwrap().contains("link: cannot be changed"), "{refused}");
    }
    let same = json!({"metadata": {"name": "a"}, "spec": {"link": true}, "file": base64(&file)});
    linked.stack.put(path, same).await.is(200);
    linked.stack.post(&format!("{LINK}/invitation"), json!({"hours": 0})).await.refused(400, "invalid");
    linked.stack.post("/v2/cluster-providers/p/clusters/none/link/invitation", json!({})).await.refused(404, "not_found");
}

#[tokio::test]
async fn cluster_that_is_reached_directly_has_no_link() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    stack.post(&format!("{LINK}/invitation"), json!({})).await.refused(409, "wrong_state");
    stack.get(LINK).await.refused(409, "wrong_state");
    let linked = json!({"metadata": {"name": "b"}, "spec": {"link": true}, "file": base64(&stack.sim.kubeconfig("b", &stack.sim_url))});
    stack.post("/v2/cluster-providers/p/clusters", linked).await.is(201);
    let off = stack.post("/v2/cluster-providers/p/clusters/b/link/invitation", json!({})).await.refused(409, "wrong_state");
    assert!(off["detail"].as_str().unwrap().contains("--link-listen"), "{off}");
    // It is not reached directly either, although its address could be.
    let told = |member: &drover_api::members::Member| member.state == MemberState::Unreachable;
    stack.member("p+b", told).await;
}

#[tokio::test]
async fn listener_serves_nobody_without_the_certificate_of_an_agent() {
    let linked = Linked::start().await;
    let authority = linked.invite().await["authority"].as_str().unwrap().to_owned();
    for (request, answer) in [
        (CONNECT, "403"),
        ("GET /v2/cluster-providers HTTP/1.1\r\nhost: h\r\n\r\n", "404"),
        ("GET /internal/members/p%2Ba/kubeconfig HTTP/1.1\r\nhost: h\r\nauthorization: Bearer peer-token\r\n\r\n", "404"),
    ] {
        assert_eq!(linked.answer(&authority, None, request).await, answer, "{request}");
    }
}
