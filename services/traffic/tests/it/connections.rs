//! How many connections clients may open at the ports of routes.

use std::io;

use drover_api::traffic::RouteProtocol;
use drover_testkit::eventually;
use drover_traffic::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use crate::support::{Feeds, PATIENCE, Process, free_port, pod, route};

/// A connection that was given to a pod, or what the port answered instead.
async fn connect(port: u16) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    // A connection that is refused may be closed while this is written.
    let sent = stream.write_all(b"GET / HTTP/1.1\r\nhost: any\r\n\r\n").await;
    let mut answer = vec![0; 4096];
    let read = timeout(PATIENCE, stream.read(&mut answer)).await.expect("the port answers or closes");
    let text = match (sent, read) {
        (_, Ok(read)) => String::from_utf8_lossy(&answer[..read]).into_owned(),
        (_, Err(error)) => {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            String::new()
        }
    };
    if text.starts_with("HTTP/1.1 200") { Ok(stream) } else { Err(text) }
}

/// A process with an http route and a tcp route to one pod, and their ports.
async fn limited(change: impl FnOnce(&mut Config)) -> (Feeds, Process, [u16; 2], impl Sized) {
    let (feeds, dir) = (Feeds::start().await, tempfile::tempdir().unwrap());
    let (copy, (stand_in, address)) = (Uuid::new_v4(), pod("web"));
    feeds.pods(copy, &[address], None);
    let routes = [RouteProtocol::Http, RouteProtocol::Tcp].map(|protocol| route(protocol, None, free_port(), &[(copy, 100)]));
    routes.iter().for_each(|route| feeds.route(route));
    let process = Process::with(feeds.peers(), dir.path(), None, change).await;
    for route in &routes {
        process.answering(route.id, 1).await;
    }
    (feeds, process, routes.map(|route| route.port), (stand_in, dir))
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused_until_others_end() {
    let (_feeds, process, [http, tcp], _kept) = limited(|config| config.max_route_connections = 3).await;
    let mut open = vec![connect(http).await.unwrap(), connect(http).await.unwrap(), connect(tcp).await.unwrap()];
    let busy = connect(http).await.unwrap_err();
    assert!(busy.starts_with("HTTP/1.1 503") && busy.contains("busy_server"), "{busy}");
    assert_eq!(connect(tcp).await.unwrap_err(), "", "a connection that need not be HTTP is closed without an answer");
    let metrics = reqwest::Client::new().get(format!("http://{}/metrics", process.running.addr)).bearer_auth("token");
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("drover_route_connections_refused_total 2"), "{metrics}");

    open.pop();
    open.push(eventually(PATIENCE, async || connect(http).await.ok()).await);
    connect(http).await.unwrap_err();
    drop(open);
    process.running.stop().await;
}

#[tokio::test]
async fn connections_of_one_address_are_limited_if_that_is_asked_for() {
    let (_feeds, process, [http, _], _kept) = limited(|config| config.max_route_connections_per_address = Some(1)).await;
    let one = connect(http).await.unwrap();
    let busy = connect(http).await.unwrap_err();
    assert!(busy.starts_with("HTTP/1.1 503"), "{busy}");
    drop(one);
    process.running.stop().await;
}
