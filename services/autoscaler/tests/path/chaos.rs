//! Apps that break connections or cannot be reached; a sidecar that is terminated under load.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_testkit::{ChaosProxy, eventually};
use http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::queue_proxy::stats;
use crate::support::{App, PATIENCE, Sidecar, client, code, refusing};

#[tokio::test]
async fn broken_app_connection_is_bad_gateway_and_frees_its_slot() {
    let app = App::held().await;
    let chaos = ChaosProxy::start(app.address).await;
    let sidecar = Sidecar::before(chaos.address(), &["--container-concurrency", "1"]).await;
    let request = tokio::spawn(client().post(sidecar.url("/")).body("x").send());
    app.came(1).await;
    chaos.cut();
    let answer = request.await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(code(answer).await, "app_broke_off");
    let away = client().get(sidecar.url("/")).send().await.unwrap();
    assert!(away.status() == StatusCode::BAD_GATEWAY || away.status() == StatusCode::SERVICE_UNAVAILABLE);
    chaos.restore();
    app.answers.add_permits(10);
    assert_eq!(client().get(sidecar.url("/")).send().await.unwrap().status(), StatusCode::OK);
    eventually(PATIENCE, async || (stats(&sidecar).await["underWay"] == 0.0).then_some(())).await;
}

#[tokio::test]
async fn missing_app_is_reported_as_unreachable() {
    let (_socket, address) = refusing();
    let sidecar = Sidecar::before(address, &[]).await;
    let answer = client().post(sidecar.url("/")).body("x").send().await.unwrap();
    assert_eq!((answer.status(), answer.headers()["retry-after"].to_str().unwrap()), (StatusCode::SERVICE_UNAVAILABLE, "1"));
    assert_eq!(code(answer).await, "app_unreachable");
}

#[tokio::test]
async fn truncated_answer_fails_for_the_client() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 1024];
        let _ = stream.read(&mut head).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await.unwrap();
    });
    let sidecar = Sidecar::before(address, &[]).await;
    let answer = client().get(sidecar.url("/")).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.bytes().await.is_err(), "the truncated body is an error");
    app.await.unwrap();
    eventually(PATIENCE, async || (stats(&sidecar).await["underWay"] == 0.0).then_some(())).await;
}

/// An app may close an idle connection just when it is used again.
#[tokio::test]
async fn closed_idle_connection_fails_no_request() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        // One answer per connection, without announcing that it closes.
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 1024];
                if stream.read(&mut head).await.unwrap_or(0) > 0 {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                }
            });
        }
    });
    let sidecar = Sidecar::before(address, &[]).await;
    let client = client();
    for _ in 0..200 {
        assert_eq!(client.get(sidecar.url("/")).send().await.unwrap().status(), StatusCode::OK);
    }
}

/// The process is ended as the kubelet does it, while clients send requests on connections that they keep.
#[tokio::test]
async fn sigterm_under_load_fails_no_request() {
    let app = App::quick().await;
    let any = "127.0.0.1:0";
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_drover-autoscaler"))
        .args(["queue-proxy", "--listen", any, "--admin", any, "--app-port", &app.address.port().to_string()])
        .args(["--container-concurrency", "4", "--quiet", "3600", "--drain", "3600"])
        .env("NO_COLOR", "1")
        .env_remove("AUTOSCALER_LOG")
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
    let first = tokio::time::timeout(PATIENCE, log.next_line()).await.expect("the log has the address").unwrap().unwrap();
    let said =
        |name: &str| first.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap_or_else(|| panic!("{first}")).to_owned();
    let (listen, admin) = (said("listen="), said("admin="));
    let ready = async || client().get(format!("http://{admin}/ready")).send().await.ok().map(|answer| answer.status());
    eventually(PATIENCE, async || (ready().await == Some(StatusCode::OK)).then_some(())).await;
    // Clients stop some requests after the pod is no longer ready, as with endpoints; until then no request may fail. A second signal then
    // ends the quiet time, which is longer than any pause of a loaded machine.
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (stop, url) = (stop.clone(), format!("http://{listen}/"));
            tokio::spawn(async move {
                let client = client();
                let mut answered = 0;
                while !stop.load(Ordering::SeqCst) {
                    let answer = client.post(&url).body("load").send().await.expect("every request is answered");
                    assert_eq!(answer.status(), StatusCode::OK);
                    assert_eq!(answer.text().await.expect("the whole body"), "load");
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    app.came(200).await;
    kill(Pid::from_raw(process.id().unwrap().cast_signed()), Signal::SIGTERM).unwrap();
    eventually(PATIENCE, async || (ready().await == Some(StatusCode::SERVICE_UNAVAILABLE)).then_some(())).await;
    let so_far = *app.came.borrow();
    app.came(so_far + 100).await;
    stop.store(true, Ordering::SeqCst);
    let answered: usize = futures::future::join_all(clients).await.into_iter().map(Result::unwrap).sum();
    assert!(answered >= 300, "{answered}");
    kill(Pid::from_raw(process.id().expect("it still waits for late requests").cast_signed()), Signal::SIGTERM).unwrap();
    let status = tokio::time::timeout(PATIENCE, process.wait()).await.expect("the process ends").unwrap();
    assert!(status.success(), "{status}");
}
