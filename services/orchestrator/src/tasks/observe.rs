//! Keeps the measured call graphs: writes down what spans came to, and asks Prometheus where a call graph says so. What fails
//! is tried again at the next look; measured calls only get older meanwhile.

use std::time::Duration;

use drover_api::scheduling::groups::observe::{Edge, Labels, Rate, rates};
use drover_resources::of_kind;
use drover_service::prometheus;
use reqwest::Url;
use uuid::Uuid;

use crate::app::{App, Error, measured};
use crate::resources::CALL_GRAPH;
use crate::resources::call_graph::{CallGraphSpec, PrometheusSpec};
use crate::store::call_edge::Source;

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(10);
/// Time for one query.
const PATIENCE: Duration = Duration::from_secs(5);
/// No answer is larger.
const MOST_BYTES: usize = 4 << 20;

/// Runs for ever.
pub async fn run(app: App, prometheus: Option<Url>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        if let Err(error) = once(&app, prometheus.as_ref()).await {
            tracing::debug!(error = %drover_service::problem::chain(&error), "measured calls could not be written down");
        }
    }
}

/// One look.
pub async fn once(app: &App, prometheus: Option<&Url>) -> Result<(), Error> {
    app.write_measured().await?;
    let Some(base) = prometheus else { return Ok(()) };
    for (composite_app, spec) in asking(app).await? {
        match ask(base, &spec).await {
            Ok(edges) => app.keep(composite_app, Source::Prometheus, &edges).await?,
            Err(error) => tracing::debug!(%error, query = %spec.query, "Prometheus does not tell who calls whom"),
        }
    }
    Ok(())
}

/// Call graphs with a query, by composite app.
async fn asking(app: &App) -> Result<Vec<(Uuid, PrometheusSpec)>, Error> {
    let mut connection = app.store.pool().acquire().await?;
    let graphs = of_kind::<CallGraphSpec>(&mut connection, &CALL_GRAPH).await?;
    Ok(graphs.into_iter().filter_map(|graph| Some((graph.parent_id?, graph.spec.prometheus?))).collect())
}

async fn ask(base: &Url, spec: &PrometheusSpec) -> anyhow::Result<Vec<Edge>> {
    let request = prometheus::query(base, &spec.query, PATIENCE);
    // An error has a body that says why; it is read like an answer.
    let answer = request.send().await.map_err(reqwest::Error::without_url)?.bytes().await.map_err(reqwest::Error::without_url)?;
    anyhow::ensure!(answer.len() <= MOST_BYTES, "the answer has {} bytes", answer.len());
    let labels = Labels { from: spec.from_label().to_owned(), to: spec.to_label().to_owned() };
    Ok(rates(std::str::from_utf8(&answer)?, &labels, Rate { window: spec.window_seconds(), now: measured::seconds() })?)
}
