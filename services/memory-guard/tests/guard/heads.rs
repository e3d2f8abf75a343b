//! The agent's listeners: a connection whose head is not finished is closed, and there is a limit of connections.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::support::machine::FakeMachine;

/// Longer than the limit of 30 s, also on a loaded machine: only a listener without a limit keeps a connection for so long.
const LONG: Duration = Duration::from_secs(180);

async fn half_a_head(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-").await.unwrap();
    let closed = timeout(LONG, stream.read_to_end(&mut Vec::new())).await;
    assert!(closed.is_ok(), "a connection without a request stays open for {LONG:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_heads_and_too_many_connections_are_closed() {
    let machine = FakeMachine::new();
    let (state, runtime) = (machine.dir.path().join("state"), machine.socket());
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let agent = machine.start(&state, &runtime).args(["--listen", &port.to_string()]).start().unwrap();
    agent.status_when("it observes", |_| true).await.unwrap();
    let socket = agent.socket();
    let tcp = loop {
        match TcpStream::connect(port).await {
            Ok(stream) => break stream,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    tokio::join!(half_a_head(UnixStream::connect(&socket).await.unwrap()), half_a_head(tcp));

    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(UnixStream::connect(&socket).await.unwrap());
    }
    let mut refused = String::new();
    timeout(LONG, UnixStream::connect(&socket).await.unwrap().read_to_string(&mut refused)).await.unwrap().unwrap();
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused:?}");
    drop(open);
    agent.status_when("it answers again", |_| true).await.unwrap();
    agent.stop().await.unwrap();
}
