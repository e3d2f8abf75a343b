//! Processes of the data path are killed: one of two on one machine, and one at each point of what it does.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use drover_api::traffic::{RouteProtocol, RouteReport};
use drover_service::Peers;
use drover_testkit::eventually;
use drover_traffic::failpoint::FAILPOINTS;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::support::{Feeds, PATIENCE, Process, Shop, free_port, pod, route};

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

/// Starts a process of its own.
fn started(feeds: &Feeds, at: SocketAddr, dir: &Path, change: impl FnOnce(&mut Command)) -> Child {
    let peers = feeds.peers();
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover-traffic"));
    command
        .args(["--listen", &at.to_string(), "--insecure-no-auth", "--dir"])
        .arg(dir)
        .args(["--peers-orchestrator", peers.orchestrator.as_str()])
        .args(["--peers-resource-synchronizer", peers.resource_synchronizer.as_str()])
        .env("DROVER_PEER_TOKEN", "token")
        .stdout(Stdio::null())
        .kill_on_drop(true);
    change(&mut command);
    command.spawn().unwrap()
}

#[tokio::test]
async fn process_that_is_killed_breaks_only_its_own_connections() {
    let (feeds, dirs) = (Feeds::start().await, tempfile::tempdir().unwrap());
    let (copy, pods) = (Uuid::new_v4(), [pod("web-1"), pod("web-2")]);
    let shop = route(RouteProtocol::Http, Some("shop.example"), free_port(), &[(copy, 100)]);
    feeds.pods(copy, &pods.iter().map(|(_, address)| *address).collect::<Vec<_>>(), None);
    feeds.route(&shop);

    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut killed = started(&feeds, at, &dirs.path().join("killed"), |command| {
        command.arg("--reuse-port");
    });
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

/// Kills a process at this point, and asks a new one that hears of nobody else.
async fn killed_at(point: &str) {
    let shop = Shop::start().await;
    shop.is_stored().await;
    let at = || SocketAddr::from(([127, 0, 0, 1], free_port()));
    let armed = |command: &mut Command| {
        command.env("DROVER_FAILPOINTS", format!("{point}=crash"));
    };
    let Shop { feeds, route: shop_route, pods, process, dir, client } = shop;
    let url = format!("http://shop.example:{}/", shop_route.port);
    let serves = async || client.get(&url).send().await.is_ok_and(|answer| answer.status() == 200);
    let dies = async |mut child: Child| {
        let ended = eventually(PATIENCE, async || child.try_wait().unwrap()).await;
        assert!(!ended.success(), "{point}: {ended}");
    };
    if point.starts_with("traffic/take/") {
        // The next process dies while it takes the ports over.
        dies(started(&feeds, at(), dir.path(), armed)).await;
        if point == "traffic/take/taken" {
            assert!(serves().await, "{point}: the old process goes on");
        }
    } else if point.starts_with("traffic/give/") {
        // The old process dies while it gives them away. The next one may not get all of them; who supervises it starts another one.
        process.running.stop().await;
        let old_at = at();
        let old = started(&feeds, old_at, dir.path(), armed);
        eventually(PATIENCE, async || Process::report_of(old_at, shop_route.id).await).await;
        // A file may be left from the process before; somebody must listen there.
        eventually(PATIENCE, async || UnixStream::connect(dir.path().join("handover.sock")).await.ok()).await;
        let mut next = started(&feeds, at(), dir.path(), |_| {});
        dies(old).await;
        next.kill().await.unwrap();
    } else {
        process.running.stop().await;
        let late = route(RouteProtocol::Http, Some("late.example"), free_port(), &[(shop_route.backends[0].binding, 100)]);
        feeds.route(&late);
        dies(started(&feeds, at(), dir.path(), armed)).await;
    }
    let next = Process::with_peers(Peers::default(), dir.path(), None).await;
    eventually(PATIENCE, async || serves().await.then_some(())).await;
    next.running.stop().await;
    drop(pods);
}

#[tokio::test]
async fn process_that_is_killed_at_any_point_serves_on_from_its_table_when_it_is_started_again() {
    for point in FAILPOINTS {
        killed_at(point).await;
    }
}
