//! One of two processes of the data path on one machine is killed.

use std::net::SocketAddr;
use std::process::Stdio;

use drover_api::traffic::{RouteProtocol, RouteReport};
use drover_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use uuid::Uuid;

use crate::support::{Feeds, PATIENCE, Process, free_port, pod, route};

/// Connections, of which each process is all but certain to get some.
const CONNECTIONS: usize = 40;

/// A request on a connection that is kept. None: the connection is broken.
async fn ask(connection: &mut TcpStream) -> Option<()> {
    connection.write_all(b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n").await.ok()?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(connection.read_u8().await.ok()?);
    }
    let head = String::from_utf8(answer).unwrap().to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    match head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        Some(length) => {
            let mut body = vec![0; length.parse().unwrap()];
            connection.read_exact(&mut body).await.ok().map(drop)
        }
        None => {
            assert!(head.contains("transfer-encoding: chunked"), "{head}");
            let mut body = Vec::new();
            while !body.ends_with(b"0\r\n\r\n") {
                body.push(connection.read_u8().await.ok()?);
            }
            Some(())
        }
    }
}

#[tokio::test]
async fn process_that_is_killed_breaks_only_its_own_connections() {
    let (feeds, dirs) = (Feeds::start().await, tempfile::tempdir().unwrap());
    let (copy, pods) = (Uuid::new_v4(), [pod("web-1"), pod("web-2")]);
    let shop = route(RouteProtocol::Http, Some("shop.example"), free_port(), &[(copy, 100)]);
    feeds.pods(copy, &pods.iter().map(|(_, address)| *address).collect::<Vec<_>>(), None);
    feeds.route(&shop);

    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let peers = feeds.peers();
    let mut killed = Command::new(env!("CARGO_BIN_EXE_drover-traffic"))
        .args(["--listen", &at.to_string(), "--insecure-no-auth", "--reuse-port", "--dir"])
        .arg(dirs.path().join("killed"))
        .args(["--peers-orchestrator", peers.orchestrator.as_str()])
        .args(["--peers-resource-synchronizer", peers.resource_synchronizer.as_str()])
        .env("DROVER_PEER_TOKEN", "token")
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let stays = Process::with(feeds.peers(), &dirs.path().join("stays"), None, |config| config.reuse_port = true).await;
    let answering = |report: &RouteReport| report.problem.is_none() && report.backends.iter().all(|backend| backend.answering == 2);
    eventually(PATIENCE, async || Process::report_of(at, shop.id).await.filter(answering)).await;
    stays.answering(shop.id, 2).await;

    let address = SocketAddr::from(([127, 0, 0, 1], shop.port));
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = TcpStream::connect(address).await.unwrap();
        ask(&mut connection).await.expect("an answer");
        connections.push(connection);
    }
    // Each has sent one request, so the number of requests is that of connections.
    let of_killed = eventually(PATIENCE, async || {
        let [gone, there] =
            [Process::report_of(at, shop.id).await?, stays.report(shop.id).await?].map(|report| report.backends[0].requests);
        (gone + there == CONNECTIONS as u64).then_some(gone)
    })
    .await;
    assert!(of_killed > 0 && of_killed < CONNECTIONS as u64, "both have connections: {of_killed}");

    killed.kill().await.unwrap();
    let mut broken = 0;
    for connection in &mut connections {
        broken += u64::from(ask(connection).await.is_none());
    }
    assert_eq!(broken, of_killed);
    for _ in 0..CONNECTIONS {
        let mut connection = TcpStream::connect(address).await.unwrap();
        ask(&mut connection).await.expect("the other process accepts all new connections");
    }
    stays.running.stop().await;
}
