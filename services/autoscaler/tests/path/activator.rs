//! The activator over loopback: holds, tells, releases by capacity, tries another pod, leaves.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::routing::post;
use axum::{Json, Router};
use clap::Parser;
use drover_autoscaler::config::{Cli, Command};
use drover_autoscaler::path::Key;
use drover_autoscaler::path::activator::catalogue::App as Wanted;
use drover_autoscaler::path::activator::{Activator, Config};
use drover_autoscaler::path::push::Decider;
use drover_autoscaler::path::token::Token;
use drover_autoscaler::wire::{Push, Standing};
use drover_testkit::{ChaosProxy, eventually};
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{App, PATIENCE, Sidecar, client};

const ME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Settings as the command line makes them.
pub fn settings(more: &[&str]) -> Config {
    let arguments = ["drover-autoscaler", "activator", "--address", "127.0.0.1", "--bind", "127.0.0.1"];
    match Cli::try_parse_from(arguments.iter().chain(more)).unwrap().command {
        Command::Activator(config) => config,
        _ => unreachable!("the command is named above"),
    }
}

/// An activator and what it tells.
struct Held {
    activator: Arc<Activator>,
    key: Key,
    port: u16,
    told: mpsc::UnboundedReceiver<Push>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Held {
    /// One app without pods.
    async fn one(more: &[&str]) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let listener = TcpListener::bind((ME, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let take = move |Json(push): Json<Push>| {
            let tell = tell.clone();
            async move {
                let _ = tell.send(push);
                Json(Standing::default())
            }
        };
        let decider = Router::new().route("/v1/statistics", post(take));
        let decider = tokio::spawn(async move { axum::serve(listener, decider).await.unwrap() });
        let (activator, pokes) = Activator::new(&settings(more));
        let to = Decider::new(&format!("http://{address}"), "test".to_owned(), Token::new("/nonexistent".into())).unwrap();
        let tells = tokio::spawn(activator.clone().tell(to, pokes));
        let key = Key { namespace: "shop".to_owned(), policy: "cart".to_owned() };
        let mut held = Self { activator, key, port: 0, told, _tasks: vec![AbortOnDropHandle::new(decider), AbortOnDropHandle::new(tells)] };
        // A port that somebody else has just taken is not opened: another one then.
        held.port = eventually(PATIENCE, async || {
            let port = TcpListener::bind((ME, 0)).await.unwrap().local_addr().unwrap().port();
            held.activator.set([(held.key.clone(), Wanted { port, in_path: true, ..Wanted::default() })].into()).await;
            held.activator.status(&held.key).map(|_| port)
        })
        .await;
        held
    }

    async fn pods(&self, pods: &[&Sidecar], container_concurrency: usize, in_path: bool) {
        let pods: BTreeMap<_, _> = pods.iter().map(|pod| (pod.address, pod.admin)).collect();
        let app = Wanted { port: self.port, in_path, activators: vec![ME], container_concurrency, pods };
        self.activator.set([(self.key.clone(), app)].into()).await;
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    async fn waiting(&self, n: usize) {
        eventually(PATIENCE, async || (self.activator.status(&self.key).unwrap().waiting == n).then_some(())).await;
    }
}

#[tokio::test]
async fn requests_wait_for_the_first_pod_and_the_decider_hears_of_them_at_once() {
    let mut held = Held::one(&[]).await;
    let url = held.url();
    let sent: Vec<_> = (0..50).map(|n| tokio::spawn(client().post(&url).body(format!("{n}")).send())).collect();
    let first = held.told.recv().await.unwrap();
    assert_eq!((first.namespace.as_str(), first.policy.as_str()), ("shop", "cart"));
    let report = first.requests.unwrap();
    assert_eq!((report.average_concurrency, report.count), (1.0, 1.0));
    held.waiting(50).await;
    let all = eventually(PATIENCE, async || held.told.recv().await.filter(|push| push.requests.unwrap().average_concurrency == 50.0)).await;
    assert_eq!(all.requests.unwrap().average_proxied_concurrency, 0.0);

    // The pod is there, but its app is not ready yet.
    let late = TcpListener::bind((ME, 0)).await.unwrap();
    let address = late.local_addr().unwrap();
    drop(late);
    let not_yet = Sidecar::before(address, &[]).await;
    held.pods(&[&not_yet], 0, true).await;
    assert_eq!(held.activator.status(&held.key).unwrap().waiting, 50);

    let app = App::quick().await;
    let pod = Sidecar::before(app.address, &[]).await;
    held.pods(&[&not_yet, &pod], 0, true).await;
    for (n, answer) in sent.into_iter().enumerate() {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!((answer.status(), answer.text().await.unwrap()), (StatusCode::OK, n.to_string()));
    }
    assert_eq!(*app.came.borrow(), 50);
}

#[tokio::test]
async fn requests_go_on_as_pods_have_room() {
    let held = Held::one(&[]).await;
    let (one, other) = (App::held().await, App::held().await);
    let (first, second) = (Sidecar::before(one.address, &[]).await, Sidecar::before(other.address, &[]).await);
    held.pods(&[&first, &second], 3, true).await;
    let url = held.url();
    let sent: Vec<_> = (0..20).map(|_| tokio::spawn(client().get(&url).send())).collect();
    held.waiting(14).await;
    one.came(3).await;
    other.came(3).await;
    assert_eq!((one.inside.load(Ordering::SeqCst), other.inside.load(Ordering::SeqCst)), (3, 3));
    one.answers.add_permits(20);
    other.answers.add_permits(20);
    for answer in sent {
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert_eq!((one.most.load(Ordering::SeqCst), other.most.load(Ordering::SeqCst)), (3, 3));
}

#[tokio::test]
async fn what_a_pod_does_not_take_another_one_gets() {
    let held = Held::one(&[]).await;
    let (one, other) = (App::quick().await, App::quick().await);
    let (mut dying, pod) = (Sidecar::before(one.address, &[]).await, Sidecar::before(other.address, &[]).await);
    let chaos = ChaosProxy::start(dying.address).await;
    dying.address = chaos.address();
    held.pods(&[&dying], 0, true).await;
    assert_eq!(client().get(held.url()).send().await.unwrap().status(), StatusCode::OK);
    chaos.cut();
    // Held: the only pod takes nothing (GETs are tried again even if it broke off), and says all the while that it is ready.
    let url = held.url();
    let sent: Vec<_> = (0..10).map(|_| tokio::spawn(client().get(&url).send())).collect();
    held.pods(&[&dying, &pod], 0, true).await;
    held.pods(&[&pod], 0, true).await;
    for answer in sent {
        let status = answer.await.unwrap().unwrap().status();
        // A connection that is accepted and closed at once looks like an app that broke off.
        assert!(status == StatusCode::OK || status == StatusCode::BAD_GATEWAY, "{status}");
    }
    for _ in 0..10 {
        assert_eq!(client().post(held.url()).body("x").send().await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn out_of_the_path_it_serves_on_and_asks_clients_to_go() {
    let held = Held::one(&[]).await;
    let app = App::quick().await;
    let pod = Sidecar::before(app.address, &[]).await;
    held.pods(&[&pod], 0, true).await;
    let client = client();
    let answer = client.get(held.url()).send().await.unwrap();
    assert!(answer.headers()["seen"].to_str().unwrap().contains("for=127.0.0.1, 127.0.0.1"));
    assert_eq!(answer.headers().get("connection"), None);
    held.pods(&[&pod], 0, false).await;
    let answer = client.get(held.url()).send().await.unwrap();
    assert_eq!((answer.status(), answer.headers()["connection"].to_str().unwrap()), (StatusCode::OK, "close"));
    held.pods(&[&pod], 0, true).await;
    assert_eq!(client.get(held.url()).send().await.unwrap().headers().get("connection"), None);
}

#[tokio::test]
async fn told_to_go_it_holds_what_it_has_to_the_end() {
    let held = Held::one(&[]).await;
    let url = held.url();
    let sent = tokio::spawn(client().get(&url).send());
    held.waiting(1).await;
    let activator = held.activator.clone();
    let leaving = tokio::spawn(async move { activator.drain(std::time::Duration::from_millis(50)).await });
    let app = App::quick().await;
    let pod = Sidecar::before(app.address, &[]).await;
    held.pods(&[&pod], 0, true).await;
    assert_eq!(sent.await.unwrap().unwrap().status(), StatusCode::OK);
    tokio::time::timeout(PATIENCE, leaving).await.expect("it leaves").unwrap();
    assert!(client().get(&url).send().await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn an_app_that_is_gone_closes_its_port() {
    let held = Held::one(&[]).await;
    held.activator.set(BTreeMap::new()).await;
    assert!(held.activator.status(&held.key).is_none());
    eventually(PATIENCE, async || client().get(held.url()).send().await.is_err().then_some(())).await;
}
