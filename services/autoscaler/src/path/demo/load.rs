//! An open-loop load: requests are sent at fixed times, whether or not earlier ones were answered. The result is printed as one JSON line.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::app::DemoAnswer;
use super::unix;

/// Maximum number of failures that are shown.
const SHOWN: usize = 5;

/// Settings of `demo-load`.
#[derive(clap::Args, Clone, Debug)]
pub struct Config {
    /// URL to send requests to.
    #[arg(value_name = "URL")]
    pub url: Uri,
    /// Requests per second.
    #[arg(long, default_value_t = 20.0, value_name = "N")]
    pub rate: f64,
    /// Duration of the load in seconds.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub during: f64,
    /// Seconds after which a request has failed.
    #[arg(long, default_value_t = 120.0, value_name = "SECONDS")]
    pub patience: f64,
}

/// The result. Times are in seconds since 1970, durations in seconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Requests sent.
    pub sent: u64,
    /// Requests that were not answered with 2xx.
    pub failed: u64,
    /// The first few failures.
    pub failures: Vec<String>,
    /// When the first request was sent.
    pub first_request: f64,
    /// When the first answer arrived.
    pub first_answer: f64,
    /// How long the app that sent it had been up.
    pub first_up: Option<f64>,
    /// Latencies by percentile, measured from the time at which a request was due.
    pub latency: BTreeMap<String, f64>,
}

/// Sends the load and waits for the last answer.
///
/// # Errors
/// If the settings cannot be used.
pub async fn run(config: Config) -> Result<()> {
    let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build_http();
    let patience = Duration::from_secs_f64(config.patience);
    let count = (config.rate * config.during).floor().max(1.0);
    let mut outcome = Outcome { first_request: unix(), ..Outcome::default() };
    let began = Instant::now();
    let mut asked = JoinSet::new();
    for n in 0..count as u64 {
        let due = began + Duration::from_secs_f64(n as f64 / config.rate);
        tokio::time::sleep_until(due).await;
        let (client, url) = (client.clone(), config.url.clone());
        asked.spawn(async move {
            let answer = tokio::time::timeout(patience, ask(client, url)).await.unwrap_or_else(|late| Err(late.into()));
            (answer, due.elapsed().as_secs_f64(), unix())
        });
    }
    let mut latencies = Vec::new();
    while let Some(done) = asked.join_next().await {
        let (answer, latency, at) = done?;
        outcome.sent += 1;
        match answer {
            Ok(answer) => {
                latencies.push(latency);
                if outcome.first_answer == 0.0 || at < outcome.first_answer {
                    (outcome.first_answer, outcome.first_up) = (at, Some(answer.up));
                }
            }
            Err(error) => {
                outcome.failed += 1;
                if outcome.failures.len() < SHOWN {
                    outcome.failures.push(format!("{error:#}"));
                }
            }
        }
    }
    latencies.sort_by(f64::total_cmp);
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
        if let Some(latency) = latencies.get(((latencies.len() as f64 * share).ceil() as usize).saturating_sub(1)) {
            outcome.latency.insert(name.to_owned(), *latency);
        }
    }
    use std::io::Write;
    writeln!(std::io::stdout().lock(), "{}", serde_json::to_string(&outcome)?)?;
    Ok(())
}

async fn ask(client: Client<HttpConnector, Full<Bytes>>, url: Uri) -> Result<DemoAnswer> {
    let response = client.request(Request::post(url).body(Full::from("load"))?).await.context("no answer")?;
    let status = response.status();
    let body = response.into_body().collect().await.context("the answer is incomplete")?.to_bytes();
    ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).context("this is not the demo app")
}
