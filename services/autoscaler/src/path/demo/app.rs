//! A tiny app to try scaling with, of a known capacity: it answers so many requests at once, each after so long or after so much work.
//!
//! Says on `/` how many it answered and since when it is up; takes `?ms=` for another duration.

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

/// `demo-app`.
#[derive(clap::Args, Clone, Debug)]
pub struct Config {
    /// Where it serves.
    #[arg(long, env = "DEMO_APP_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Milliseconds that a request takes.
    #[arg(long, env = "DEMO_APP_WORK", default_value_t = 50, value_name = "MS")]
    pub work: u64,
    /// Milliseconds of CPU that a request burns after that: with a CPU limit, what a pod can do follows.
    #[arg(long, env = "DEMO_APP_BURN", default_value_t = 0, value_name = "MS")]
    pub burn: u64,
    /// Requests that it works on at once; more wait inside.
    #[arg(long, env = "DEMO_APP_AT_ONCE", default_value_t = 10, value_name = "N")]
    pub at_once: usize,
    /// Milliseconds from its start until it accepts connections.
    #[arg(long, env = "DEMO_APP_START", default_value_t = 0, value_name = "MS")]
    pub start: u64,
}

/// What it answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// How many requests it answered, with this one.
    pub served: u64,
    /// Seconds since it accepts connections.
    pub up: f64,
}

#[derive(Debug)]
struct App {
    work: Duration,
    burn: Duration,
    places: Semaphore,
    served: AtomicU64,
    since: Instant,
}

#[derive(Deserialize)]
struct Wish {
    ms: Option<u64>,
}

/// Runs until it is told to end; requests under way are answered.
///
/// # Errors
/// The address is taken.
pub async fn run(config: Config) -> Result<()> {
    tokio::time::sleep(Duration::from_millis(config.start)).await;
    let listener = TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    let ended = async {
        if let Err(error) = crate::path::told_to_end().await {
            tracing::error!("{error:#}");
        }
    };
    axum::serve(listener, router(&config)).with_graceful_shutdown(ended).await.context("the listener failed")
}

/// What it serves.
pub fn router(config: &Config) -> Router {
    let app = App {
        work: Duration::from_millis(config.work),
        burn: Duration::from_millis(config.burn),
        places: Semaphore::new(config.at_once),
        served: AtomicU64::new(0),
        since: Instant::now(),
    };
    Router::new().route("/", any(answer)).with_state(Arc::new(app))
}

async fn answer(State(app): State<Arc<App>>, Query(wish): Query<Wish>) -> Json<Answer> {
    let _place = app.places.acquire().await;
    tokio::time::sleep(wish.ms.map_or(app.work, Duration::from_millis)).await;
    if !app.burn.is_zero() {
        let burn = app.burn;
        let _ = tokio::task::spawn_blocking(move || burned(burn)).await;
    }
    Json(Answer { served: app.served.fetch_add(1, Ordering::Relaxed) + 1, up: app.since.elapsed().as_secs_f64() })
}

/// Works until this thread was on a core for so long, however long that takes.
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
