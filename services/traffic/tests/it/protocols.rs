//! What travels through the data path: WebSocket, gRPC, uploads, TLS, plain TCP.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use drover_api::traffic::RouteProtocol;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::support::{Feeds, Process, Shop, client, free_port, pod, route};

#[tokio::test]
async fn websocket_is_carried_in_both_directions() {
    let shop = Shop::start().await;
    let mut stream = TcpStream::connect(("127.0.0.1", shop.route.port)).await.unwrap();
    let head = "GET /chat HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    for text in ["one", "two"] {
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut back = [0; 3];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(back, text.as_bytes());
    }
    shop.process.reports(shop.route.id, |report| report.backends[0].under_way == 1).await;
    drop(stream);
    shop.process.reports(shop.route.id, |report| report.backends[0].under_way == 0).await;
    shop.process.running.stop().await;
}

#[tokio::test]
async fn grpc_keeps_http2_and_its_trailers() {
    let shop = Shop::start().await;
    let stream = TcpStream::connect(("127.0.0.1", shop.route.port)).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(shop.url("/shop.Cart/Add")).header("content-type", "application/grpc").header("te", "trailers");
    let answer = sender.send_request(request.body(Full::new(Bytes::from_static(b"\0\0\0\0\x02hi"))).unwrap()).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_2));
    let collected = answer.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(collected.to_bytes(), Bytes::from_static(b"\0\0\0\0\x02hi"));
    shop.process.running.stop().await;
}

#[tokio::test]
async fn http2_client_reaches_an_app_that_speaks_http1_and_large_uploads_arrive() {
    let shop = Shop::start().await;
    let address = SocketAddr::from(([127, 0, 0, 1], shop.route.port));
    let second = client().resolve("shop.example", address).http2_prior_knowledge().build().unwrap();
    let body = vec![7; 20 << 20];
    for client in [&second, &shop.client] {
        let answer = client.put(shop.url("/upload")).body(body.clone()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.text().await.unwrap().ends_with(&format!(" {}\n", 20 << 20)));
    }
    shop.process.running.stop().await;
}

#[tokio::test]
async fn tls_ends_in_the_data_path_with_the_certificate_of_the_host() {
    let (feeds, dir, keys) = (Feeds::start().await, tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificate(keys.path(), "shop.example");
    let (copy, (stand_in, address), port) = (Uuid::new_v4(), pod("web-tls"), free_port());
    let shop = route(RouteProtocol::Https, Some("shop.example"), port, &[(copy, 100)]);
    let other = route(RouteProtocol::Https, Some("other.example"), port, &[(copy, 100)]);
    feeds.pods(copy, &[address], None);
    feeds.route(&shop);
    feeds.route(&other);
    let process = Process::start(&feeds, dir.path(), Some(keys.path())).await;
    process.answering(shop.id, 1).await;
    let problem = process.reports(other.id, |report| report.problem.is_some()).await.problem.unwrap();
    assert!(problem.contains("other.example.crt"), "{problem}");

    let root = reqwest::Certificate::from_pem(&std::fs::read(keys.path().join("shop.example.crt")).unwrap()).unwrap();
    let here = SocketAddr::from(([127, 0, 0, 1], port));
    let client = client().tls_certs_only([root]).resolve("shop.example", here).resolve("other.example", here).build().unwrap();
    let answer = client.get(format!("https://shop.example:{port}/")).send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), answer.version(), answer.headers()["x-pod"].to_str().unwrap()),
        (200, http::Version::HTTP_2, "web-tls")
    );
    assert!(client.get(format!("https://other.example:{port}/")).send().await.is_err(), "there is no certificate for it");
    drop(stand_in);
    process.running.stop().await;
}

/// Makes a certificate that vouches for itself.
fn certificate(dir: &Path, host: &str) {
    let (key, crt) = (dir.join(format!("{host}.key")), dir.join(format!("{host}.crt")));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj"])
        .arg(format!("/CN={host}"))
        .args(["-addext", &format!("subjectAltName=DNS:{host}")])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&crt)
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[tokio::test]
async fn tcp_is_carried_with_half_closed_connections() {
    let (feeds, dir) = (Feeds::start().await, tempfile::tempdir().unwrap());
    let (copy, (stand_in, address), port) = (Uuid::new_v4(), pod("db-0"), free_port());
    let data = route(RouteProtocol::Tcp, None, port, &[(copy, 100)]);
    feeds.pods(copy, &[address], None);
    feeds.route(&data);
    let process = Process::start(&feeds, dir.path(), None).await;
    process.answering(data.id, 1).await;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: db\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("x-pod: db-0"), "{answer}");
    drop(stand_in);
    process.running.stop().await;
}
