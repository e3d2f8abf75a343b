//! What outlives a process: the table on disk, and the ports when the next process takes them over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use drover_api::traffic::RouteProtocol;
use drover_service::Peers;
use drover_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{PATIENCE, Process, Shop, client, free_port, pod, route};

#[tokio::test]
async fn process_serves_from_its_table_on_disk_when_nobody_else_answers() {
    let shop = Shop::start().await;
    shop.is_stored().await;
    shop.process.running.stop().await;
    let process = Process::with_peers(Peers::default(), shop.dir.path(), None).await;
    let answer = shop.client.get(format!("http://shop.example:{}/", shop.route.port)).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    process.running.stop().await;
}

#[tokio::test]
async fn requests_are_served_while_the_disk_does_not_answer() {
    let mut shop = Shop::start().await;
    let table = shop.dir.path().join("table.json");
    shop.is_stored().await;
    // Whoever opens it waits until somebody reads from it.
    let new = shop.dir.path().join(format!("table.{}.new", std::process::id()));
    assert!(std::process::Command::new("mkfifo").arg(&new).status().unwrap().success());
    let (seen, waits) = std::sync::mpsc::channel::<()>();
    // Not in the runtime: a process that waits for its disk there would never end.
    let reader = std::thread::spawn(move || {
        let in_time = waits.recv_timeout(PATIENCE).is_ok();
        std::fs::read(&new).and_then(|_| std::fs::remove_file(&new)).expect("it is read");
        in_time
    });

    let (third, address) = pod("web-3");
    let changed = Instant::now();
    shop.feeds.pods(shop.copy(), &[address], None);
    shop.process.reports(shop.route.id, |report| report.backends[0].endpoints == 1 && report.backends[0].answering == 1).await;
    // Several times as long as it takes until a change is stored.
    while changed.elapsed() < Duration::from_secs(1) {
        assert_eq!(shop.pod().await, "web-3");
    }
    seen.send(()).expect("somebody waits for it");
    assert!(reader.join().unwrap(), "nothing was served while the table was being stored");

    // It is stored when the disk answers again and something changes.
    shop.route.hold_seconds = 7;
    shop.feeds.route(&shop.route);
    eventually(PATIENCE, async || std::fs::read_to_string(&table).ok().filter(|text| text.contains(&address.to_string()))).await;
    drop(third);
    shop.process.running.stop().await;
}

#[tokio::test]
async fn next_process_knows_the_routes_that_came_just_before_it() {
    let shop = Shop::start().await;
    // Changes that follow each other within milliseconds are stored together, so the last of them is not yet on disk.
    for host in ["one.example", "two.example", "three.example"] {
        let late = route(RouteProtocol::Http, Some(host), free_port(), &[(shop.copy(), 100)]);
        shop.feeds.route(&late);
        let address = ("127.0.0.1", late.port);
        eventually(PATIENCE, async || TcpStream::connect(address).await.ok()).await;
        if host == "three.example" {
            let next = Process::with_peers(Peers::default(), shop.dir.path(), None).await;
            TcpStream::connect(address).await.expect("the port is open in the next process, too");
            next.running.stop().await;
        }
    }
    shop.process.running.stop().await;
}

#[tokio::test]
async fn next_process_takes_the_ports_over_and_no_request_fails() {
    let shop = Shop::start().await;
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], shop.route.port));
    let load: Vec<_> = [true, false]
        .into_iter()
        .map(|kept| {
            let idle = if kept { 8 } else { 0 };
            let client = client().resolve("shop.example", address).pool_max_idle_per_host(idle).build().unwrap();
            let (url, until, answered) = (shop.url("/?ms=3"), stop.clone(), answered.clone());
            tokio::spawn(async move {
                while !until.load(Ordering::Relaxed) {
                    let answer = client.post(&url).body("x").send().await.expect("an answer");
                    assert_eq!(answer.status(), 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut chat = shop.chat().await;
    let next = Process::start(&shop.feeds, shop.dir.path(), None).await;
    assert_eq!(next.running.addr, shop.process.running.addr, "the address for other services is handed over, too");
    let until = answered.load(Ordering::Relaxed) + 200;
    eventually(PATIENCE, async || (answered.load(Ordering::Relaxed) > until).then_some(())).await;
    next.reports(shop.route.id, |report| report.backends[0].requests > 100).await;
    // A connection that the old process has goes on there.
    chat.write_all(b"still there").await.unwrap();
    let mut back = [0; 11];
    chat.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"still there");
    drop(chat);
    // It ends by itself when it has no connection any more.
    eventually(PATIENCE, async || shop.process.running.shutdown.is_cancelled().then_some(())).await;
    stop.store(true, Ordering::Relaxed);
    for load in load {
        load.await.unwrap();
    }
    next.running.stop().await;
}
