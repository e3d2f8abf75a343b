//! A small app of a known capacity to try scaling with: it serves a number of requests at the same time, each with a given duration or CPU time.
//!
//! `/` answers how many requests were served and since when the app is up; `?ms=` sets another duration.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::extract::{Query, State};
use axum::routing::any;
use axum::{Json, Router};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Settings of `demo-app`.
#[derive(clap::Args, Clone, Debug)]
pub struct Config {
    /// Address to serve on.
    #[arg(long, env = "DEMO_APP_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Milliseconds that a request takes.
    #[arg(long, env = "DEMO_APP_WORK", default_value_t = 50, value_name = "MS")]
    pub work: u64,
    /// Milliseconds of CPU time that a request uses after that; with a CPU limit this determines the capacity of a pod.
    #[arg(long, env = "DEMO_APP_BURN", default_value_t = 0, value_name = "MS")]
    pub burn: u64,
    /// Requests that are served at the same time; others wait inside the app.
    #[arg(long, env = "DEMO_APP_AT_ONCE", default_value_t = 10, value_name = "N")]
    pub at_once: usize,
    /// Milliseconds from the start until the app accepts connections.
    #[arg(long, env = "DEMO_APP_START", default_value_t = 0, value_name = "MS")]
    pub start: u64,
}

/// The answer to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DemoAnswer {
    /// Number of requests served, including this one.
    pub served: u64,
    /// Seconds since the app accepts connections.
    pub up: f64,
}

#[derive(Debug)]
struct DemoApp {
    work: Duration,
    burn: Duration,
    places: Semaphore,
    served: AtomicU64,
    since: Instant,
}

#[derive(Deserialize)]
struct DemoQuery {
    ms: Option<u64>,
}

/// Runs until the process is told to end; requests in progress are answered.
///
/// # Errors
/// If the address cannot be bound.
pub async fn run(config: Config) -> Result<()> {
    tokio::time::sleep(Duration::from_millis(config.start)).await;
    let listener = TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    let ended = async {
        if let Err(error) = crate::path::termination().await {
            tracing::error!("{error:#}");
        }
    };
    axum::serve(listener, router(&config)).with_graceful_shutdown(ended).await.context("the listener failed")
}

/// The routes.
pub fn router(config: &Config) -> Router {
    let app = DemoApp {
        work: Duration::from_millis(config.work),
        burn: Duration::from_millis(config.burn),
        places: Semaphore::new(config.at_once),
        served: AtomicU64::new(0),
        since: Instant::now(),
    };
    Router::new().route("/", any(answer)).with_state(Arc::new(app))
}

async fn answer(State(app): State<Arc<DemoApp>>, Query(wish): Query<DemoQuery>) -> Json<DemoAnswer> {
    let _place = app.places.acquire().await;
    tokio::time::sleep(wish.ms.map_or(app.work, Duration::from_millis)).await;
    if !app.burn.is_zero() {
        let burn = app.burn;
        let _ = tokio::task::spawn_blocking(move || burned(burn)).await;
    }
    Json(DemoAnswer { served: app.served.fetch_add(1, Ordering::Relaxed) + 1, up: app.since.elapsed().as_secs_f64() })
}

/// Computes until this thread has used this much CPU time, however long that takes.
fn burned(long: Duration) {
    let spent = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let Ok(begin) = spent() else { return };
    let mut number = 1_u64;
    while spent().is_ok_and(|spent| spent - begin < long) {
        for _ in 0..1_000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}
