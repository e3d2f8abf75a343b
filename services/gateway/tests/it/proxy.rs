//! Requests to services that cannot be reached.

use std::time::Duration;

use drover_gateway::{Config, start};
use drover_service::{Common, Peers};
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// An address that does not answer connection requests: its queue of connections that nobody accepts is full, so the kernel drops
/// further SYN packets, as a firewall or a host that is down would.
struct Silent {
    listener: TcpListener,
    _queued: TcpStream,
}

impl Silent {
    async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // Linux queues one connection more than the backlog.
        let listener = socket.listen(0).unwrap();
        let queued = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        Self { listener, _queued: queued }
    }

    fn url(&self) -> url::Url {
        format!("http://{}/", self.listener.local_addr().unwrap()).parse().unwrap()
    }
}

#[tokio::test]
async fn unreachable_service_is_answered_with_peer_unavailable() {
    let silent = Silent::start().await;
    let peers = Peers { orchestrator: silent.url(), ..Peers::default() };
    let common = Common::new("postgres://none", "token", peers);
    let gateway = start(Config { listen: "127.0.0.1:0".parse().unwrap() }, common).await.unwrap();
    // Without a limit of its own for connecting, the gateway answers only when the limit for long polls (85 s) has passed.
    let request = reqwest::Client::new().get(format!("http://{}/v2/projects", gateway.addr)).timeout(Duration::from_secs(40));
    let response = request.send().await.expect("the gateway gives up connecting");
    assert_eq!((response.status().as_u16(), &response.headers()["content-type"]), (503, &"application/problem+json".parse().unwrap()));
    let problem: Value = response.json().await.unwrap();
    assert_eq!(problem["code"], "peer_unavailable", "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("orchestrator"), "{problem}");
    gateway.stop().await;
}
