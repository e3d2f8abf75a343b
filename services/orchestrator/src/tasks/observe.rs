//! Keeps measured call graphs up to date: stores what was counted from spans, and queries Prometheus where a call graph has a
//! query. A failed pass is repeated at the next one; until then the stored calls only lose confidence.

use std::time::Duration;

use drover_api::scheduling::groups::observe::{Edge, EdgeLabels, RateWindow, rates};
use drover_resources::of_kind;
use drover_service::{TaskHandle, prometheus};
use reqwest::Url;
use uuid::Uuid;

use super::every::every;
use crate::app::{App, Error, measured};
use crate::resources::CALL_GRAPH;
use crate::resources::call_graph::{CallGraphSpec, PrometheusSpec};
use crate::store::call_edge::MeasurementSource;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(10);
/// Timeout of one query.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer that is read.
const MAX_BYTES: usize = 4 << 20;

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, prometheus: Option<Url>, task: TaskHandle) {
    let pass = || async { once(&app, prometheus.as_ref()).await };
    every(PERIOD, task, "measured calls could not be stored", pass).await;
}

/// One pass. A query that fails is logged and does not hold up the others.
///
/// # Errors
/// The database could not be read or written.
pub async fn once(app: &App, prometheus: Option<&Url>) -> Result<(), Error> {
    app.write_measured().await?;
    let Some(base) = prometheus else { return Ok(()) };
    for (composite_app, spec) in graphs_with_query(app).await? {
        match query(base, &spec).await {
            Ok(edges) => app.keep(composite_app, MeasurementSource::Prometheus, &edges).await?,
            Err(error) => tracing::debug!(%error, query = %spec.query, "a call graph's Prometheus query failed"),
        }
    }
    Ok(())
}

/// Call graphs that have a query, each with its composite app.
async fn graphs_with_query(app: &App) -> Result<Vec<(Uuid, PrometheusSpec)>, Error> {
    let mut connection = app.store.acquire().await?;
    let graphs = of_kind::<CallGraphSpec>(&mut connection, &CALL_GRAPH).await?;
    Ok(graphs.into_iter().filter_map(|graph| Some((graph.parent_id?, graph.spec.prometheus?))).collect())
}

async fn query(base: &Url, spec: &PrometheusSpec) -> anyhow::Result<Vec<Edge>> {
    let request = prometheus::query(base, &spec.query, TIMEOUT);
    // The body of an error says why; it is read like that of an answer.
    let answer = request.send().await.map_err(reqwest::Error::without_url)?.bytes().await.map_err(reqwest::Error::without_url)?;
    anyhow::ensure!(answer.len() <= MAX_BYTES, "the answer has {} bytes; at most {MAX_BYTES} are read", answer.len());
    let labels = EdgeLabels { from: spec.from_label().to_owned(), to: spec.to_label().to_owned() };
    Ok(rates(std::str::from_utf8(&answer)?, &labels, RateWindow { window: spec.window_seconds(), now: measured::seconds() })?)
}
