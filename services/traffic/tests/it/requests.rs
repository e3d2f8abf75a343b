//! Which pod a request goes to, and what happens when it cannot take it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_api::scheduling::MemberKey;
use drover_api::traffic::{RouteBackend, RouteProtocol};
use drover_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

use crate::support::{PATIENCE, Shop, pod, route};

#[tokio::test]
async fn requests_are_shared_among_the_pods_and_keep_their_host() {
    let shop = Shop::start().await;
    let mut seen = BTreeSet::new();
    for _ in 0..60 {
        seen.insert(shop.pod().await);
    }
    assert_eq!(seen, BTreeSet::from(["web-1".to_owned(), "web-2".to_owned()]));
    let report = shop.process.reports(shop.route.id, |report| report.backends[0].requests == 60).await;
    assert_eq!((report.backends[0].failures, report.backends[0].under_way), (0, 0));
    shop.process.running.stop().await;
}

#[tokio::test]
async fn unknown_host_and_app_without_pods_are_told_as_problems() {
    let shop = Shop::start().await;
    let port = shop.route.port;
    let other = shop.client.get(format!("http://127.0.0.1:{port}/")).send().await.unwrap();
    assert_eq!(other.status(), 404);
    let problem: serde_json::Value = other.json().await.unwrap();
    assert_eq!(problem["code"], "no_route", "{problem}");

    let none = drover_api::traffic::RouteTable { hold_seconds: 0, ..route(RouteProtocol::Http, None, port, &[(Uuid::new_v4(), 100)]) };
    shop.feeds.route(&none);
    shop.process.reports(none.id, |report| report.backends.len() == 1).await;
    let empty = shop.client.get(format!("http://127.0.0.1:{port}/")).send().await.unwrap();
    assert_eq!((empty.status(), empty.headers()["retry-after"].to_str().unwrap()), (reqwest::StatusCode::SERVICE_UNAVAILABLE, "1"));
    let problem: serde_json::Value = empty.json().await.unwrap();
    assert_eq!(problem["code"], "app_unreachable", "{problem}");
    shop.process.running.stop().await;
}

#[tokio::test]
async fn requests_never_fail_while_pods_vanish_and_come() {
    let mut shop = Shop::start().await;
    let stop = Arc::new(AtomicBool::new(false));
    let (client, url, until) = (shop.client.clone(), shop.url("/"), stop.clone());
    let load = tokio::spawn(async move {
        let mut answered = 0;
        while !until.load(Ordering::Relaxed) {
            let answer = client.post(&url).body("order").send().await.expect("an answer");
            assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
            answered += 1;
        }
        answered
    });
    // A pod that is gone refuses connections before anybody tells the data path.
    let (first, _) = shop.pods.remove(0);
    drop(first);
    shop.process.reports(shop.route.id, |report| report.backends[0].answering == 1).await;
    let (third, address) = pod("web-3");
    let second = shop.pods[0].1;
    shop.feeds.pods(shop.copy(), &[second, address], None);
    shop.process.answering(shop.route.id, 2).await;
    shop.feeds.pods(shop.copy(), &[address], None);
    shop.process.reports(shop.route.id, |report| report.backends[0].endpoints == 1).await;
    stop.store(true, Ordering::Relaxed);
    assert!(load.await.unwrap() > 0);
    assert_eq!(shop.pod().await, "web-3");
    drop(third);
    shop.process.running.stop().await;
}

#[tokio::test]
async fn copy_with_weight_zero_is_probed_and_gets_no_request_until_its_weight_grows() {
    let mut shop = Shop::start().await;
    let (new, address) = pod("web-new");
    let copy = Uuid::new_v4();
    shop.feeds.pods(copy, &[address], None);
    shop.route.backends.push(RouteBackend { binding: copy, member: MemberKey::new("p", "m"), weight: 0 });
    shop.feeds.route(&shop.route);
    shop.process.answering(shop.route.id, 3).await;
    for _ in 0..30 {
        assert_ne!(shop.pod().await, "web-new");
    }
    // What is under way when the weights change ends where it began: a connection, and a request, which a slow machine may end before.
    let mut chat = shop.chat().await;
    let slow = tokio::spawn(shop.client.get(shop.url("/?ms=1500")).send());
    shop.process.reports(shop.route.id, |report| report.backends[0].under_way == 2 || slow.is_finished()).await;
    (shop.route.backends[0].weight, shop.route.backends[1].weight) = (0, 100);
    shop.feeds.route(&shop.route);
    shop.process.reports(shop.route.id, |report| report.backends[0].weight == 0 && report.backends[0].under_way >= 1).await;
    for _ in 0..30 {
        assert_eq!(shop.pod().await, "web-new");
    }
    assert_ne!(slow.await.unwrap().unwrap().headers()["x-pod"].to_str().unwrap(), "web-new");
    chat.write_all(b"still there").await.unwrap();
    let mut back = [0; 11];
    chat.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"still there");
    drop(chat);
    shop.process.reports(shop.route.id, |report| report.backends[0].under_way == 0).await;
    drop(new);
    shop.process.running.stop().await;
}

#[tokio::test]
async fn pods_that_another_member_names_for_a_copy_get_no_request() {
    let mut shop = Shop::start().await;
    let (stray, address) = pod("web-stray");
    let copy = Uuid::new_v4();
    shop.feeds.pods(copy, &[address], None);
    // The copy runs on `n`; the feed says that its pods are on `m`.
    shop.route.backends.push(RouteBackend { binding: copy, member: MemberKey::new("p", "n"), weight: 100 });
    shop.feeds.route(&shop.route);
    shop.process.reports(shop.route.id, |report| report.backends.len() == 2 && report.backends[1].endpoints == 0).await;
    for _ in 0..30 {
        assert_ne!(shop.pod().await, "web-stray");
    }
    drop(stray);
    shop.process.running.stop().await;
}

#[tokio::test]
async fn request_waits_for_the_first_pod_as_long_as_the_route_says() {
    let shop = Shop::start().await;
    shop.feeds.pods(shop.copy(), &[], None);
    shop.process.reports(shop.route.id, |report| report.backends[0].endpoints == 0).await;
    let waiting = tokio::spawn(shop.client.get(shop.url("/")).send());
    let (late, address) = pod("web-late");
    shop.feeds.pods(shop.copy(), &[address], None);
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["x-pod"].to_str().unwrap()), (200, "web-late"));
    drop(late);
    shop.process.running.stop().await;
}

#[tokio::test]
async fn port_that_is_in_use_is_the_routes_problem_and_no_other_routes() {
    let shop = Shop::start().await;
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let blocked = route(RouteProtocol::Http, None, port, &[(shop.copy(), 100)]);
    shop.feeds.route(&blocked);
    let report = shop.process.reports(blocked.id, |report| report.problem.is_some()).await;
    assert!(report.problem.unwrap().contains("cannot be opened"));
    shop.pod().await;
    drop(taken);
    shop.process.reports(blocked.id, |report| report.problem.is_none()).await;
    let double = route(RouteProtocol::Tcp, None, port, &[(shop.copy(), 100)]);
    shop.feeds.route(&double);
    // Which of the two comes first depends on their ids.
    eventually(PATIENCE, async || {
        let reports = [shop.process.report(double.id).await, shop.process.report(blocked.id).await];
        reports.into_iter().flatten().any(|report| report.problem.is_some()).then_some(())
    })
    .await;
    shop.process.running.stop().await;
}
