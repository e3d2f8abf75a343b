//! The sidecar: it forwards and counts requests, admits as many as the app takes, and drains.

use std::sync::atomic::Ordering;

use drover_testkit::eventually;
use http::StatusCode;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{App, PATIENCE, Sidecar, client, code, refusing};

#[tokio::test]
async fn queue_proxy_passes_requests_and_answers_unchanged() {
    let app = App::quick().await;
    let sidecar = Sidecar::before(app.address, &[]).await;
    let body = vec![7u8; 3 << 20];
    let request = client().post(sidecar.url("/deep/path?x=1")).header("host", "shop.example").header("x-forwarded-for", "192.0.2.1");
    let answer = request.body(body.clone()).send().await.unwrap();
    assert_eq!(answer.headers()["seen"], "HTTP/1.1 /deep/path host=shop.example for=192.0.2.1, 127.0.0.1 proxied=-");
    assert_eq!(answer.bytes().await.unwrap(), body);
}

#[tokio::test]
async fn queue_proxy_passes_h2c_as_http2() {
    let app = App::quick().await;
    let sidecar = Sidecar::before(app.address, &["--container-concurrency", "5"]).await;
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().timeout(PATIENCE).build().unwrap();
    let answers = futures::future::join_all((0..20).map(|n| client.post(sidecar.url("/two")).body(n.to_string()).send())).await;
    for (n, answer) in answers.into_iter().enumerate() {
        let answer = answer.unwrap();
        assert_eq!(answer.version(), http::Version::HTTP_2);
        let seen = answer.headers()["seen"].to_str().unwrap().to_owned();
        assert!(seen.starts_with(&format!("HTTP/2.0 /two host={}", sidecar.address)), "{seen}");
        assert_eq!(answer.text().await.unwrap(), n.to_string());
    }
    assert!(app.most.load(Ordering::SeqCst) <= 5, "the limit counts requests, not connections");
}

#[tokio::test]
async fn upgraded_connection_is_joined_and_counted_until_it_ends() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let app = listener.local_addr().unwrap();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").await.unwrap();
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await.unwrap();
        String::from_utf8(head).unwrap().to_ascii_lowercase()
    });
    let sidecar = Sidecar::before(app, &[]).await;
    let mut stream = TcpStream::connect(sidecar.address).await.unwrap();
    stream.write_all(b"GET /chat HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"hello");
    assert_eq!(stats(&sidecar).await["underWay"], 1.0);
    drop(stream);
    assert!(echo.await.unwrap().contains("upgrade: echo"));
    eventually(PATIENCE, async || (stats(&sidecar).await["underWay"] == 0.0).then_some(())).await;
}

#[tokio::test]
async fn queue_proxy_admits_capacity_queues_ten_times_and_refuses_the_rest() {
    let app = App::held().await;
    let sidecar = Sidecar::before(app.address, &["--container-concurrency", "2"]).await;
    let sent: Vec<_> = (0..22).map(|_| tokio::spawn(client().get(sidecar.url("/")).send())).collect();
    eventually(PATIENCE, async || (stats(&sidecar).await["underWay"] == 22.0).then_some(())).await;
    let refused = client().get(sidecar.url("/")).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(code(refused).await, "queue_full");
    app.answers.add_permits(22);
    for answer in sent {
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert_eq!(app.most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn disconnected_client_leaves_the_queue() {
    let app = App::held().await;
    let sidecar = Sidecar::before(app.address, &["--container-concurrency", "1"]).await;
    let first = tokio::spawn(client().get(sidecar.url("/first")).send());
    app.came(1).await;
    // One request is complete, one is still being sent.
    let gone = tokio::spawn(client().get(sidecar.url("/gone")).send());
    let mut half = TcpStream::connect(sidecar.address).await.unwrap();
    half.write_all(b"POST /half HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nonly this").await.unwrap();
    let last = {
        eventually(PATIENCE, async || (stats(&sidecar).await["underWay"] == 3.0).then_some(())).await;
        tokio::spawn(client().get(sidecar.url("/last")).send())
    };
    eventually(PATIENCE, async || (stats(&sidecar).await["underWay"] == 4.0).then_some(())).await;
    gone.abort();
    drop(half);
    eventually(PATIENCE, async || (stats(&sidecar).await["underWay"] == 2.0).then_some(())).await;
    app.answers.add_permits(2);
    assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(last.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(*app.came.borrow(), 2, "disconnected requests never reached the app");
}

#[tokio::test]
async fn request_waiting_too_long_is_refused() {
    let app = App::held().await;
    let sidecar = Sidecar::before(app.address, &["--container-concurrency", "1", "--patience", "0"]).await;
    let first = tokio::spawn(client().get(sidecar.url("/")).send());
    app.came(1).await;
    let late = client().get(sidecar.url("/")).send().await.unwrap();
    assert_eq!(late.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(code(late).await, "no_pod_in_time");
    app.answers.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn statistics_count_requests_and_proxied_ones_but_no_probes() {
    let app = App::held().await;
    let sidecar = Sidecar::before(app.address, &[]).await;
    let plain = tokio::spawn(client().get(sidecar.url("/")).send());
    let proxied = tokio::spawn(client().get(sidecar.url("/")).header("drover-proxied", "activator").send());
    let probe = tokio::spawn(client().get(sidecar.url("/")).header("user-agent", "kube-probe/1.36").send());
    app.came(3).await;
    // A whole second in which both were in progress.
    let second = eventually(PATIENCE, async || {
        let stats = stats(&sidecar).await;
        (stats["averageConcurrency"] == 2.0).then_some(stats)
    })
    .await;
    assert_eq!((&second["averageProxiedConcurrency"], &second["underWay"]), (&1.0.into(), &2.0.into()));
    assert_eq!(second["count"], 0.0, "they came in an earlier second");
    app.answers.add_permits(3);
    for answer in [plain, proxied, probe] {
        let answer = answer.await.unwrap().unwrap();
        assert!(answer.headers()["seen"].to_str().unwrap().ends_with("proxied=-"), "the header is not forwarded to the app");
    }
}

#[tokio::test]
async fn ready_reflects_the_app() {
    let (_socket, address) = refusing();
    let sidecar = Sidecar::before(address, &[]).await;
    let ready = async || client().get(format!("http://{}/ready", sidecar.admin)).send().await.unwrap().status();
    assert_eq!(ready().await, StatusCode::SERVICE_UNAVAILABLE);
    let app = App::quick().await;
    let sidecar = Sidecar::before(app.address, &["--ready-path", "/healthy"]).await;
    assert_eq!(client().get(format!("http://{}/ready", sidecar.admin)).send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn wait_for_drain_waits_for_the_last_answer() {
    let app = App::held().await;
    let sidecar = Sidecar::before(app.address, &[]).await;
    let request = tokio::spawn(client().get(sidecar.url("/")).send());
    app.came(1).await;
    let admin = format!("http://{}", sidecar.admin);
    let mut waiting = tokio::spawn(client().get(format!("{admin}/wait-for-drain")).send());
    eventually(PATIENCE, async || {
        let ready = client().get(format!("{admin}/ready")).send().await.unwrap();
        (ready.status() == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    })
    .await;
    // The listener is closed, so that only the request keeps the drain from its end. Each round trip would let an answer through.
    eventually(PATIENCE, async || TcpStream::connect(sidecar.address).await.is_err().then_some(())).await;
    for _ in 0..20 {
        assert_eq!(stats(&sidecar).await["underWay"], 1.0);
    }
    assert!(futures::FutureExt::now_or_never(&mut waiting).is_none(), "drained although a request is in progress");
    app.answers.add_permits(1);
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(request.await.unwrap().unwrap().status(), StatusCode::OK);
    tokio::time::timeout(PATIENCE, sidecar.serving).await.expect("the sidecar drains").unwrap();
}

#[tokio::test]
async fn queue_proxy_ends_with_the_name_of_a_task_that_cannot_run_again() {
    let arguments = ["queue-proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--quiet", "0.1"];
    let ended = tokio::process::Command::new(env!("CARGO_BIN_EXE_drover-autoscaler"))
        .args(arguments)
        .env("NO_COLOR", "1")
        .env("DROVER_PANIC_TASKS", "report,admin-server")
        .kill_on_drop(true)
        .output();
    let ended = tokio::time::timeout(PATIENCE, ended).await.expect("the process ends").unwrap();
    let log = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{log}");
    assert!(log.contains("task admin-server failed: panicked"), "{log}");
    assert!(log.contains("a task failed and is started again task=report"), "{log}");
}

pub async fn stats(sidecar: &Sidecar) -> Value {
    client().get(format!("http://{}/stats", sidecar.admin)).send().await.unwrap().json().await.unwrap()
}
