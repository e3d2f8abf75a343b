//! Queries to a Prometheus server for current values.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use drover_autoscaling::Reading;
use serde::Deserialize;

/// Time limit of a query.
const PATIENCE: Duration = Duration::from_secs(5);

/// Labels and value of each series.
type Values = Vec<(HashMap<String, String>, f64)>;

/// A Prometheus client. TLS is set up at the first query: most agents never query, and the certificates of the authorities take memory.
#[derive(Debug, Default)]
pub struct PrometheusClient(OnceLock<Result<reqwest::Client, String>>);

impl PrometheusClient {
    fn client(&self) -> Result<&reqwest::Client, String> {
        let settings = || reqwest::Client::builder().timeout(PATIENCE);
        // If the image has no certificates of authorities, only plain HTTP is possible.
        let make = || settings().build().or_else(|_| settings().tls_certs_only([]).build());
        let made = self.0.get_or_init(|| make().map_err(|error| format!("TLS cannot be set up: {error}")));
        made.as_ref().map_err(String::clone)
    }

    /// The sum of all series, without values older than `stale` seconds.
    pub async fn sum(&self, url: &str, query: &str, stale: u32) -> Reading<f64> {
        match self.series(url, query, stale).await {
            Err(why) => Reading::Absent(why),
            Ok(series) if series.is_empty() => Reading::Absent(format!("Prometheus has no series for `{query}`")),
            Ok(series) => {
                let sum: f64 = series.iter().map(|(_, value)| value).sum();
                if sum.is_finite() { Reading::Value(sum) } else { Reading::Absent(format!("the sum of `{query}` is not a finite number")) }
            }
        }
    }

    /// The value of each pod, by the label `pod`.
    ///
    /// # Errors
    /// If Prometheus does not answer, refuses the query, or returns something else than numbers.
    pub async fn by_pod(&self, url: &str, query: &str, stale: u32) -> Result<HashMap<String, f64>, String> {
        let series = self.series(url, query, stale).await?;
        let mut pods: HashMap<String, f64> = HashMap::new();
        for (labels, value) in series {
            if let Some(pod) = labels.get("pod") {
                *pods.entry(pod.clone()).or_default() += value;
            }
        }
        pods.retain(|_, value| value.is_finite());
        Ok(pods)
    }

    async fn series(&self, url: &str, query: &str, stale: u32) -> Result<Values, String> {
        let url = format!("{}/api/v1/query", url.trim_end_matches('/'));
        // Without this limit Prometheus returns values up to five minutes old as if they were current.
        let lookback = format!("{stale}s");
        let failed = |error: reqwest::Error| format!("Prometheus does not answer: {}", error.without_url());
        let request = self.client()?.get(url).query(&[("query", query), ("lookback_delta", &lookback)]);
        let answer = request.send().await.map_err(failed)?;
        let code = answer.status();
        let body: QueryResponse =
            answer.json().await.map_err(|_| format!("Prometheus answers {code} with a body that is not a query result"))?;
        match body {
            QueryResponse { error: Some(error), .. } => Err(format!("Prometheus: {error}")),
            QueryResponse { data: Some(data), .. } => data.read(query),
            QueryResponse { .. } => Err(format!("Prometheus answers {code} without data")),
        }
    }
}

#[derive(Deserialize)]
struct QueryResponse {
    error: Option<String>,
    data: Option<QueryData>,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum QueryData {
    Vector(Vec<Series>),
    Scalar((f64, String)),
    #[serde(other, deserialize_with = "ignore")]
    Other,
}

#[derive(Deserialize)]
struct Series {
    metric: HashMap<String, String>,
    value: (f64, String),
}

fn ignore<'de, D: serde::Deserializer<'de>>(data: D) -> Result<(), D::Error> {
    serde::de::IgnoredAny::deserialize(data).map(|_| ())
}

impl QueryData {
    fn read(self, query: &str) -> Result<Values, String> {
        let number = |text: &str| text.parse::<f64>().map_err(|_| format!("Prometheus answers `{text}`, which is not a number"));
        match self {
            Self::Scalar((_, value)) => Ok(vec![(HashMap::new(), number(&value)?)]),
            Self::Vector(series) => series.into_iter().map(|series| Ok((series.metric, number(&series.value.1)?))).collect(),
            Self::Other => Err(format!("`{query}` must give an instant vector or a scalar")),
        }
    }
}
