//! Limits of connections, as a client on a bare socket sees them.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use drover_service::{Common, ConnectionLimits, Peers, Running, bind, serve};
use drover_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than any limit that these tests set, so that only a limit that does not exist is noticed.
const PATIENCE: Duration = Duration::from_secs(60);

async fn server(limits: ConnectionLimits) -> Running {
    let mut common = Common::new("postgres://nowhere/", "token", Peers::default()).scoped("test");
    common.connections = limits;
    let listener = bind("127.0.0.1:0".parse().unwrap(), &common).await.unwrap();
    serve(listener, Router::new().route("/", get(|| async { "served" })), &common)
}

/// What the server sends until it closes the connection.
async fn until_closed(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset also closes.
    let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.is_ok();
    assert!(closed, "the server does not close the connection; it sent {:?}", String::from_utf8_lossy(&bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends a request and returns the first bytes of its answer; empty if there is none.
async fn ask(stream: &mut TcpStream) -> String {
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let mut bytes = [0; 512];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await.expect("there is an answer");
    String::from_utf8_lossy(&bytes[..read.unwrap_or_default()]).into_owned()
}

async fn connect(to: SocketAddr) -> TcpStream {
    TcpStream::connect(to).await.unwrap()
}

#[tokio::test]
async fn connection_whose_head_is_not_finished_is_closed() {
    let running = server(ConnectionLimits { head_seconds: 1, ..ConnectionLimits::default() }).await;
    for sent in ["", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nhost: localhost\r\nx: y"] {
        let mut stream = connect(running.addr).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let got = until_closed(&mut stream).await;
        assert!(!got.contains("served"), "{sent:?}: {got}");
    }
    // A client that sends a byte now and then does not begin the time anew.
    let (mut read, mut write) = connect(running.addr).await.into_split();
    let trickle = async {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, async {
        tokio::select! { () = trickle => {}, _ = read.read_to_end(&mut rest) => {} }
    })
    .await
    .expect("the server closes the connection");
    running.stop().await;
}

#[tokio::test]
async fn connections_beyond_a_limit_are_refused_until_others_end() {
    for limits in
        [ConnectionLimits { per_address: 3, ..ConnectionLimits::default() }, ConnectionLimits { total: 3, ..ConnectionLimits::default() }]
    {
        let running = server(limits).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            let mut stream = connect(running.addr).await;
            assert!(ask(&mut stream).await.contains("served"));
            open.push(stream);
        }
        let refusal = until_closed(&mut connect(running.addr).await).await;
        assert!(refusal.starts_with("HTTP/1.1 503 ") && refusal.contains("busy_server"), "{limits:?}: {refusal:?}");
        assert!(ask(&mut open[0]).await.contains("served"), "an open connection is still served");
        open.pop();
        eventually(PATIENCE, async || ask(&mut connect(running.addr).await).await.contains("served").then_some(())).await;
        drop(open);
        running.stop().await;
    }
}
