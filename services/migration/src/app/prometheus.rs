//! Values of parameters of source `prometheus`, queried before planning. A failed query gives a missing value and never fails a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_scheduling::{Claim, Expression, Fleet, Movability, ParameterSource, Policy};
use drover_service::prometheus;
use futures::{StreamExt, stream};
use serde::Deserialize;
use url::Url;
use uuid::Uuid;

/// Number of concurrent queries.
const AT_ONCE: usize = 8;
/// Limit on queries for one plan.
const AT_MOST: usize = 1_000;
/// Time limits for one query and for all queries of a plan.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
const TOTAL_TIMEOUT: Duration = Duration::from_secs(8);

/// A Prometheus server, if one is configured.
#[derive(Clone)]
pub struct Prometheus(Option<Url>);

#[derive(Deserialize)]
struct QueryAnswer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    /// Time and value.
    value: (f64, String),
}

impl Prometheus {
    /// Uses the server at `base`.
    pub fn new(base: Option<Url>) -> Self {
        Self(base)
    }

    /// The values by claim and parameter, for every parameter that the policy uses and every app that may be moved.
    pub async fn values(&self, policy: &Policy, fleet: &Fleet, movability: &[Movability]) -> BTreeMap<Uuid, BTreeMap<String, f64>> {
        let Some(base) = &self.0 else { return BTreeMap::new() };
        let queries = queries(policy);
        if queries.is_empty() {
            return BTreeMap::new();
        }
        let movable: BTreeSet<(Uuid, &str)> =
            movability.iter().filter(|word| word.migration).map(|word| (word.dig, word.app.as_str())).collect();
        let candidates = fleet.claims.values().filter(|claim| movable.contains(&(claim.dig.id, claim.request.app.as_str())));
        let asked =
            candidates.flat_map(|claim| queries.iter().map(move |(name, query)| (claim.id, (*name).to_owned(), filled(query, claim))));
        let asked: Vec<(Uuid, String, String)> = asked.take(AT_MOST).collect();
        let mut values: BTreeMap<Uuid, BTreeMap<String, f64>> = BTreeMap::new();
        let mut answers = stream::iter(asked)
            .map(|(claim, name, query)| {
                let base = base.clone();
                async move { (claim, name, ask(&base, &query).await) }
            })
            .buffer_unordered(AT_ONCE);
        let deadline = tokio::time::Instant::now() + TOTAL_TIMEOUT;
        while let Ok(Some((claim, name, value))) = tokio::time::timeout_at(deadline, answers.next()).await {
            if let Some(value) = value {
                values.entry(claim).or_default().insert(name, value);
            }
        }
        values
    }
}

/// The queries of the parameters that the policy's algorithms use, by parameter.
fn queries(policy: &Policy) -> BTreeMap<&str, &str> {
    let expressions =
        policy.algorithms.iter().filter_map(|used| Expression::compile(&policy.definitions.get(&used.algorithm)?.expression).ok());
    let used: BTreeSet<String> = expressions.flat_map(|expression| expression.parameters().to_vec()).collect();
    policy
        .parameters
        .iter()
        .filter(|(name, parameter)| parameter.source == ParameterSource::Prometheus && used.contains(*name))
        .filter_map(|(name, parameter)| Some((name.as_str(), parameter.query.as_deref()?)))
        .collect()
}

/// Replaces the variables of a query by the names of the candidate. No variable is a prefix of one that is replaced later.
fn filled(query: &str, claim: &Claim) -> String {
    query
        .replace("$compositeApp", &claim.dig.composite_app)
        .replace("$provider", claim.member.provider())
        .replace("$cluster", claim.member.cluster())
        .replace("$binding", &claim.id.to_string())
        .replace("$project", &claim.dig.project)
        .replace("$dig", &claim.dig.name)
        .replace("$app", &claim.request.app)
}

async fn ask(base: &Url, query: &str) -> Option<f64> {
    let answer = async { prometheus::query(base, query, QUERY_TIMEOUT).send().await?.error_for_status()?.json::<QueryAnswer>().await };
    match answer.await {
        Ok(answer) => answer.data.result.first()?.value.1.parse().ok().filter(|value: &f64| value.is_finite()),
        Err(error) => {
            tracing::debug!(error = %error.without_url(), "a query to Prometheus failed; the parameter has no value");
            None
        }
    }
}
