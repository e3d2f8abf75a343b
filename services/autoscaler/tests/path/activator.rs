//! The activator over loopback: it holds requests, reports them, releases them by capacity, tries another pod, and drains.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::routing::post;
use axum::{Json, Router};
use clap::Parser;
use drover_autoscaler::config::{Cli, Command};
use drover_autoscaler::path::Key;
use drover_autoscaler::path::activator::catalogue::App as Wanted;
use drover_autoscaler::path::activator::{Activator, Config};
use drover_autoscaler::path::push::DeciderClient;
use drover_autoscaler::path::token::Token;
use drover_autoscaler::wire::{Push, Standing};
use drover_tasks::Tasks;
use drover_testkit::eventually;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{Admin, App, PATIENCE, Sidecar, client, refusing};

const ME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The settings of a command line.
pub fn settings(more: &[&str]) -> Config {
    let arguments = ["drover-autoscaler", "activator", "--address", "127.0.0.1", "--bind", "127.0.0.1"];
    match Cli::try_parse_from(arguments.iter().chain(more)).unwrap().command {
        Command::Activator(config) => config,
        _ => unreachable!("the command is named above"),
    }
}

/// An activator and its reports.
struct TestActivator {
    activator: Arc<Activator>,
    key: Key,
    port: u16,
    told: mpsc::UnboundedReceiver<Push>,
    tasks: Tasks,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl TestActivator {
    /// An activator with one app that has no pods.
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
        let tasks = Tasks::default();
        let activator = Activator::new(&settings(more), tasks.clone());
        let to = DeciderClient::new(&format!("http://{address}"), "test".to_owned(), Token::new("/nonexistent".into())).unwrap();
        let tells = tokio::spawn(activator.clone().tell(to));
        let key = Key { namespace: "shop".to_owned(), policy: "cart".to_owned() };
        let mut held =
            Self { activator, key, port: 0, told, tasks, _tasks: vec![AbortOnDropHandle::new(decider), AbortOnDropHandle::new(tells)] };
        // If another process has just taken the port, another one is used.
        held.port = eventually(PATIENCE, async || {
            let port = TcpListener::bind((ME, 0)).await.unwrap().local_addr().unwrap().port();
            held.activator.set([(held.key.clone(), Wanted { port, in_path: true, ..Wanted::default() })].into()).await;
            held.activator.status(&held.key).map(|_| port)
        })
        .await;
        held
    }

    async fn pods(&self, pods: &[&Sidecar], container_concurrency: usize, in_path: bool) {
        self.endpoints(pods.iter().map(|pod| (pod.address, pod.admin)).collect(), container_concurrency, in_path).await;
    }

    /// Sets the pods by address and admin address.
    async fn endpoints(&self, pods: BTreeMap<SocketAddr, SocketAddr>, container_concurrency: usize, in_path: bool) {
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
async fn requests_wait_for_first_pod_and_are_reported_at_once() {
    let mut held = TestActivator::one(&[]).await;
    let url = held.url();
    let sent: Vec<_> = (0..50).map(|n| tokio::spawn(client().post(&url).body(format!("{n}")).send())).collect();
    let first = tokio::time::timeout(PATIENCE, held.told.recv()).await.expect("a report at once").unwrap();
    assert_eq!((first.namespace.as_str(), first.policy.as_str()), ("shop", "cart"));
    let report = first.requests.unwrap();
    assert_eq!((report.average_concurrency, report.count), (1.0, 1.0));
    held.waiting(50).await;
    let all = eventually(PATIENCE, async || held.told.recv().await.filter(|push| push.requests.unwrap().average_concurrency == 50.0)).await;
    assert_eq!(all.requests.unwrap().average_proxied_concurrency, 0.0);

    // A pod that does not say that it is ready gets no request, however often it is probed.
    let other = App::quick().await;
    let not_ready = Admin::answering(StatusCode::SERVICE_UNAVAILABLE).await;
    held.endpoints([(other.address, not_ready.address)].into(), 0, true).await;
    not_ready.probed(3).await;
    assert_eq!((held.activator.status(&held.key).unwrap().waiting, *other.came.borrow()), (50, 0));

    let app = App::quick().await;
    let pod = Sidecar::before(app.address, &[]).await;
    held.endpoints([(other.address, not_ready.address), (pod.address, pod.admin)].into(), 0, true).await;
    for (n, answer) in sent.into_iter().enumerate() {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!((answer.status(), answer.text().await.unwrap()), (StatusCode::OK, n.to_string()));
    }
    assert_eq!((*app.came.borrow(), *other.came.borrow()), (50, 0));
}

#[tokio::test]
async fn requests_are_released_by_pod_capacity() {
    let held = TestActivator::one(&[]).await;
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
async fn request_refused_by_one_pod_goes_to_another() {
    let held = TestActivator::one(&[]).await;
    // A pod that says that it is ready, and refuses connections. It is probed again after each request that it refused.
    let (_socket, refusing) = refusing();
    let admin = Admin::answering(StatusCode::OK).await;
    held.endpoints([(refusing, admin.address)].into(), 0, true).await;
    admin.probed(1).await;
    let url = held.url();
    let sent: Vec<_> = (0..10).map(|n| tokio::spawn(client().post(&url).body(format!("{n}")).send())).collect();
    admin.probed(2).await;
    let app = App::quick().await;
    let pod = Sidecar::before(app.address, &[]).await;
    held.endpoints([(refusing, admin.address), (pod.address, pod.admin)].into(), 0, true).await;
    for (n, answer) in sent.into_iter().enumerate() {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!((answer.status(), answer.text().await.unwrap()), (StatusCode::OK, n.to_string()));
    }
}

#[tokio::test]
async fn activator_out_of_path_serves_and_asks_clients_to_leave() {
    let held = TestActivator::one(&[]).await;
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
async fn activator_drain_serves_held_requests() {
    let held = TestActivator::one(&[]).await;
    let url = held.url();
    let sent = tokio::spawn(client().get(&url).send());
    held.waiting(1).await;
    let activator = held.activator.clone();
    let leaving = tokio::spawn(async move { activator.drain(std::time::Duration::from_millis(50)).await });
    let app = App::quick().await;
    let pod = Sidecar::before(app.address, &[]).await;
    held.pods(&[&pod], 0, true).await;
    assert_eq!(sent.await.unwrap().unwrap().status(), StatusCode::OK);
    tokio::time::timeout(PATIENCE, leaving).await.expect("the drain ends").unwrap();
    assert!(client().get(&url).send().await.is_err(), "the port is closed");
}

#[tokio::test]
async fn removed_app_closes_its_port() {
    let held = TestActivator::one(&[]).await;
    held.activator.set(BTreeMap::new()).await;
    assert!(held.activator.status(&held.key).is_none());
    eventually(PATIENCE, async || client().get(held.url()).send().await.is_err().then_some(())).await;
}

#[tokio::test]
async fn app_and_its_probes_go_on_after_panics() {
    let held = TestActivator::one(&[]).await;
    let (app, starting) = (App::quick().await, Admin::answering(StatusCode::SERVICE_UNAVAILABLE).await);
    let pod = Sidecar::before(app.address, &[]).await;
    held.endpoints([(app.address, starting.address)].into(), 0, true).await;
    starting.probed(1).await;
    assert!(held.tasks.inject_panic(&format!("probe/{}", app.address)));
    assert!(held.tasks.inject_panic("app/shop/cart"));
    let failed = |name: &str| held.tasks.list().tasks.into_iter().any(|task| task.name.starts_with(name) && task.last_error.is_some());
    eventually(PATIENCE, async || (failed("app/") && failed("probe/")).then_some(())).await;
    held.pods(&[&pod], 0, true).await;
    let url = held.url();
    // The port is closed until the app is served again.
    let answer = eventually(PATIENCE, async || client().get(&url).send().await.ok()).await;
    assert_eq!(answer.status(), StatusCode::OK);
}
