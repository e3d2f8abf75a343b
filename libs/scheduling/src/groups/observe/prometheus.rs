//! Reads rates between services from the result of a Prometheus instant query over the metrics of a service mesh, such as
//! `sum by (source_workload, destination_workload) (rate(istio_requests_total{reporter="source"}[10m]))`.

use serde_json::Value;

use super::{Edge, ObserveError};

/// The labels that name the two services of an edge.
#[derive(Clone, Debug)]
pub struct EdgeLabels {
    /// Label of the calling service.
    pub from: String,
    /// Label of the called service.
    pub to: String,
}

impl Default for EdgeLabels {
    /// The labels of Istio.
    fn default() -> Self {
        Self { from: "source_workload".to_owned(), to: "destination_workload".to_owned() }
    }
}

/// The time range of the rates.
#[derive(Clone, Copy, Debug)]
pub struct RateWindow {
    /// Length of the range in the query in seconds; determines the confidence.
    pub window: f64,
    /// Current time in seconds since the epoch; determines the age.
    pub now: f64,
}

/// Reads the edges from an answer of `/api/v1/query`. Rates that are 0 or not a number, and services named "unknown" as in Istio, are
/// skipped.
///
/// # Errors
/// The text is not such an answer, or the answer is an error.
pub fn rates(text: &str, labels: &EdgeLabels, rate: RateWindow) -> Result<Vec<Edge>, ObserveError> {
    let answer: Value = serde_json::from_str(text)?;
    if answer.get("status").and_then(Value::as_str) == Some("error") {
        return Err(ObserveError::Refused(answer.get("error").and_then(Value::as_str).unwrap_or("an error without a text").to_owned()));
    }
    let shape = ObserveError::Shape("answer to an instant query: it has no data.result of type vector");
    let data = answer.get("data").filter(|d| d.get("resultType").and_then(Value::as_str) == Some("vector"));
    let Some(results) = data.and_then(|d| d.get("result")).and_then(Value::as_array) else { return Err(shape) };
    let edge = |result: &Value| -> Option<Edge> {
        let end = |label: &str| result.get("metric")?.get(label)?.as_str().filter(|n| !n.is_empty() && *n != "unknown").map(str::to_owned);
        let value = result.get("value")?.as_array()?;
        let calls: f64 = value.get(1)?.as_str()?.parse().ok().filter(|r: &f64| r.is_finite() && *r > 0.0)?;
        let (from, to) = (end(&labels.from)?, end(&labels.to)?);
        let confidence = 1.0 - 1.0 / (1.0 + calls * rate.window).sqrt();
        (from != to).then(|| Edge {
            from,
            to,
            rate: calls,
            age: (rate.now - value.first().and_then(Value::as_f64).unwrap_or(rate.now)).max(0.0),
            confidence,
        })
    };
    let mut edges: Vec<Edge> = results.iter().filter_map(edge).collect();
    edges.sort_by(|a, b| (&a.from, &a.to).cmp(&(&b.from, &b.to)));
    Ok(edges)
}
