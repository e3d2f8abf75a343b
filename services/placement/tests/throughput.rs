//! How many durable decisions a second: `cargo test --release -p drover-placement --test throughput -- --ignored --nocapture`.
//!
//! 100 members of 20 nodes, 3 replicas an app, 16 clients over HTTP, fsync on, against single-row commits on the same server.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use drover_placement::assemble;
use drover_scheduling::{AppRequest, Element, MemberKey, Node};
use drover_service::{Common, Peers};
use drover_store::failpoint::Failpoints;
use drover_store::private_postgres::{Durability, PrivatePostgres};
use drover_testkit::{HttpServer, eventually};
use secrecy::ExposeSecret;
use sqlx::postgres::PgPoolOptions;
use support::{ClusterManager, PATIENCE, app, dig, nodes, request};
use uuid::Uuid;

const CLIENTS: usize = 16;
const MEMBERS: usize = 100;
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(5);

fn key(n: usize) -> String {
    format!("provider{}+cluster{n:03}", n % 10)
}

/// An app for any of eight members, or for any member that carries a label.
fn wanted(n: usize, by_label: bool) -> AppRequest {
    let keys: Vec<String> = (0..8).map(|k| key((n * 13 + k * 12) % MEMBERS)).collect();
    let mut app = app("web", 3, 100, &keys.iter().map(String::as_str).collect::<Vec<_>>());
    if by_label {
        app.terms.logical_cloud = (0..MEMBERS).map(|n| MemberKey(key(n))).collect();
        let label = |provider| Element {
            cluster_provider: Some(format!("provider{provider}")),
            cluster_label: Some("all".into()),
            ..Element::default()
        };
        app.terms.intent.any_of = (0..10).map(label).collect();
    }
    app
}

/// Runs `work` on every client, over and over; how often a second.
async fn rate<F, Fut>(work: F) -> f64
where
    F: Fn(usize) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    let (work, done) = (Arc::new(work), Arc::new(AtomicU64::new(0)));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (work, done) = (work.clone(), done.clone());
        clients.spawn(async move {
            for n in 0.. {
                work(n * CLIENTS + client).await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(WARM_UP).await;
    let (before, started) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(MEASURED).await;
    (done.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: run it alone, in release"]
async fn decisions_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let postgres = PrivatePostgres::start(directory.path(), Durability::Durable).await.unwrap();
    let manager = ClusterManager::start().await;
    let large: Vec<Node> = nodes(20, 1_000_000)
        .into_iter()
        .map(|mut node| {
            node.allocatable.pods = 1_000_000;
            node
        })
        .collect();
    for n in 0..MEMBERS {
        manager.member(&key(n), (n % 10 + 1) as u8, large.clone());
    }
    let peers = Peers { cluster_manager: manager.url(), ..Peers::default() };
    let common = Common::new(postgres.url("postgres").expose_secret(), "token", peers).scoped("placement");
    let server = HttpServer::start(assemble(&common, Failpoints::default()).await.unwrap()).await;
    let client = reqwest::Client::new();
    eventually(PATIENCE, async || {
        let clusters: Vec<serde_json::Value> =
            client.get(server.url("/v2/clusters")).bearer_auth("token").send().await.ok()?.json().await.ok()?;
        (clusters.len() == MEMBERS && clusters.iter().all(|cluster| cluster["age_ms"].is_u64())).then_some(())
    })
    .await;

    let owner = Arc::new(dig("bench"));
    for by_label in [false, true] {
        let (client, base, owner) = (client.clone(), server.url(""), owner.clone());
        let decisions = rate(move |n| {
            let (client, base) = (client.clone(), base.clone());
            let body = request(&owner, vec![wanted(n, by_label)]);
            async move {
                let put = client.put(format!("{base}/internal/decisions/{}", Uuid::now_v7())).bearer_auth("token").json(&body);
                let answer = put.send().await.unwrap();
                assert!(answer.status().is_success());
                answer.bytes().await.unwrap();
            }
        })
        .await;
        println!("{decisions:.0} decisions/s ({})", if by_label { "any of 100 members by label" } else { "any of 8 members" });
    }

    let pool = PgPoolOptions::new().max_connections(CLIENTS as u32).connect(postgres.url("postgres").expose_secret()).await.unwrap();
    sqlx::query("create table bare (id uuid primary key)").execute(&pool).await.unwrap();
    let bare = rate(move |_| {
        let pool = pool.clone();
        async move {
            sqlx::query("insert into bare (id) values ($1)").bind(Uuid::now_v7()).execute(&pool).await.unwrap();
        }
    })
    .await;
    println!("{bare:.0} single-row commits/s ({CLIENTS} connections)");
    postgres.stop().await;
}
