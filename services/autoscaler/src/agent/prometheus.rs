//! What others answer over HTTP: a Prometheus to a query, now; the agent that acts to a push.

use std::collections::HashMap;
use std::time::Duration;

use drover_autoscaling::Reading;
use serde::Deserialize;

use crate::wire::{Push, Standing};

/// A query that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Series by their labels.
type Values = Vec<(HashMap<String, String>, f64)>;

/// Asks.
#[derive(Clone, Debug)]
pub struct Asker(reqwest::Client);

impl Asker {
    /// An asker.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new() -> reqwest::Result<Self> {
        Ok(Self(reqwest::Client::builder().timeout(PATIENCE).build()?))
    }

    /// The sum of all series; nothing older than `stale` seconds.
    pub async fn sum(&self, url: &str, query: &str, stale: u32) -> Reading<f64> {
        match self.series(url, query, stale).await {
            Err(why) => Reading::Absent(why),
            Ok(series) if series.is_empty() => Reading::Absent(format!("Prometheus has no series for `{query}`")),
            Ok(series) => {
                let sum: f64 = series.iter().map(|(_, value)| value).sum();
                if sum.is_finite() { Reading::Value(sum) } else { Reading::Absent(format!("`{query}` is no number")) }
            }
        }
    }

    /// The value of each pod (label `pod`).
    ///
    /// # Errors
    /// Why there is no answer, as a sentence.
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

    /// Passes a push on to another agent.
    ///
    /// # Errors
    /// It does not take it.
    pub async fn pass_on(&self, address: &str, push: &Push) -> anyhow::Result<Standing> {
        let answer = self.0.post(format!("http://{address}/v1/statistics")).json(push).send().await?;
        Ok(answer.error_for_status()?.json().await?)
    }

    async fn series(&self, url: &str, query: &str, stale: u32) -> Result<Values, String> {
        let url = format!("{}/api/v1/query", url.trim_end_matches('/'));
        // Without it Prometheus answers with what it saw up to five minutes ago as if it were of now.
        let lookback = format!("{stale}s");
        let failed = |error: reqwest::Error| format!("Prometheus does not answer: {}", error.without_url());
        let request = self.0.get(url).query(&[("query", query), ("lookback_delta", &lookback)]);
        let answer = request.send().await.map_err(failed)?;
        let code = answer.status();
        let body: Answer = answer.json().await.map_err(|_| format!("Prometheus answers {code}, and not as one would"))?;
        match body {
            Answer { error: Some(error), .. } => Err(format!("Prometheus: {error}")),
            Answer { data: Some(data), .. } => data.read(query),
            Answer { .. } => Err(format!("Prometheus answers {code} without data")),
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    error: Option<String>,
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
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

impl Data {
    fn read(self, query: &str) -> Result<Values, String> {
        let number = |text: &str| text.parse::<f64>().map_err(|_| format!("Prometheus answers `{text}`, which is no number"));
        match self {
            Self::Scalar((_, value)) => Ok(vec![(HashMap::new(), number(&value)?)]),
            Self::Vector(series) => series.into_iter().map(|series| Ok((series.metric, number(&series.value.1)?))).collect(),
            Self::Other => Err(format!("`{query}` must give an instant vector or a scalar")),
        }
    }
}
